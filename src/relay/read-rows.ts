// Reads all rows of a query, however many of them its database cannot compute.
import { inHalves } from '../runtime/halves.ts'
import { sleep } from '../runtime/repeat.ts'
import { reasonOf } from '../runtime/errors.ts'
import { RelayError, unreadableRow, type RelayRow } from './source.ts'

/** A way to read single rows of a query. */
export interface KeyReader<Found> {
  read(keys: readonly string[]): Promise<Found[]>
  keyOf(row: Found): string
  /** The taskNo of a row that cannot be read, or '' if that cannot be read either. */
  taskNoOf(key: string): Promise<string>
  /** A name of the row for people. */
  nameOf(key: string): string
  /** One row may have caused the error. */
  mayBeOfRow(err: unknown): boolean
  /** It may be the error of a moment, which any row could have met. */
  mayPass(err: unknown): boolean
}

export interface WholeKeyReader<Found> extends KeyReader<Found> {
  /** The keys of all rows, in the order of the query. */
  keys(): AsyncIterable<string[]>
}

/** The waits before a row alone is read again, after an error that may be one of a moment. */
const pausesMs = [1_000, 5_000, 25_000]

async function readAlone<Found>(reader: KeyReader<Found>, key: readonly string[]): Promise<Found[]> {
  for (let tries = 0; ; tries++) {
    try {
      return await reader.read(key)
    } catch (err) {
      const pauseMs = pausesMs[tries]
      if (pauseMs === undefined || !reader.mayBeOfRow(err) || !reader.mayPass(err)) throw err
      await sleep(pauseMs)
    }
  }
}

/** Reads the rows by their keys, in halves where that fails. A row that cannot be read alone comes with a problem. */
export async function* byKey<Found>(
  reader: KeyReader<Found>,
  keys: AsyncIterable<string[]>,
  rowOf: (found: Found) => RelayRow
): AsyncGenerator<RelayRow[]> {
  for await (const part of keys) {
    const unreadable: RelayRow[] = []
    const found = await inHalves(part, {
      work: async some => await (some.length === 1 ? readAlone(reader, some) : reader.read(some)),
      mayBeOfOne: err => reader.mayBeOfRow(err),
      setAside: async (key, err) =>
        unreadable.push({
          ...unreadableRow('', `${reasonOf(err)} (${reader.nameOf(key)})`, true),
          taskNo: await reader.taskNoOf(key)
        })
    })
    const places = new Map(part.map((key, place) => [key, place]))
    const placeOf = (row: Found): number => places.get(reader.keyOf(row)) ?? 0
    found.sort((a, b) => placeOf(a) - placeOf(b))
    yield [...found.map(rowOf), ...unreadable]
  }
}

/**
 * Reads all rows by one query, which ends at the first row that cannot be computed. The rows that were not read by then are read by their
 * keys. Rows with the key of others may be read again.
 */
export async function* wholeThenByKey<Found>(
  whole: AsyncIterable<Found[]>,
  reader: WholeKeyReader<Found>,
  { rowOf, batch }: { rowOf: (found: Found) => RelayRow; batch: number }
): AsyncGenerator<RelayRow[]> {
  const read = new Map<string, number>()
  let last: RelayRow | undefined
  let count = 0
  let fault: unknown
  try {
    for await (const found of whole) {
      for (const row of found) {
        const key = reader.keyOf(row)
        read.set(key, (read.get(key) ?? 0) + 1)
      }
      count += found.length
      const rows = found.map(rowOf)
      last = rows.at(-1)
      yield rows
    }
    return
  } catch (err) {
    if (!reader.mayBeOfRow(err)) throw err
    fault = err
  }
  yield* byKey(reader, chunks(await missing(), batch), rowOf)

  async function missing(): Promise<Set<string>> {
    const keys = new Set<string>()
    try {
      for await (const part of reader.keys())
        for (const key of part) {
          const left = read.get(key) ?? 0
          if (left > 0) read.set(key, left - 1)
          else keys.add(key)
        }
    } catch (err) {
      if (!reader.mayBeOfRow(err)) throw err
      const behind = last
        ? `behind the first ${count} rows, whose last has the taskNo ${last.taskNo}`
        : 'among the first rows'
      throw new RelayError(
        `The database of --from cannot compute a row of the query, ${behind}: ${reasonOf(fault)}. It cannot compute the taskNo of each row ` +
          `either (${reasonOf(err)}), so that the rows cannot be read one by one. Leave the row out with --where, and run the command again.`,
        { cause: err }
      )
    }
    return keys
  }
}

async function* chunks(keys: ReadonlySet<string>, size: number): AsyncGenerator<string[]> {
  let part: string[] = []
  for (const key of keys) {
    part.push(key)
    if (part.length < size) continue
    yield part
    part = []
  }
  if (part.length > 0) yield part
}
