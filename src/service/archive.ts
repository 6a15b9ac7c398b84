// The archive in files: DIR/2026-10-24.<process>.ndjson.gz holds tasks that were posted on that day, a task a line.
// Each process writes its own files, so a kill -9 can only cut off the end of a file.
import { createReadStream } from 'node:fs'
import { mkdir, open, readdir } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { createGunzip, gzip } from 'node:zlib'
import type { Archive, ArchivedTask, ArchiveRecord } from '../db/archive.ts'
import { failpoint } from '../runtime/failpoint.ts'
import { isError } from '../runtime/text-of.ts'

const zipped = promisify(gzip)
const form = /^(\d{4,}-\d\d-\d\d)\..+\.ndjson\.gz$/

/** `node`: a name that no other process has, now or later. */
export function openArchive(dir: string, node: string): Archive {
  let torn = 0
  return {
    async append(records) {
      if (records.length === 0) return
      await mkdir(dir, { recursive: true, mode: 0o700 })
      // Readers would not find what comes after a torn member.
      const name = torn === 0 ? node : `${node}.${torn + 1}`
      for (const day of new Set(records.map(record => record.day))) {
        const ofDay = records.filter(record => record.day === day)
        await appendTo(path.join(dir, `${day}.${name}.ndjson.gz`), ofDay, () => torn++)
      }
      failpoint('archive.after_write')
    }
  }
}

/** Appends a gzip member and syncs it to the disk. A member that was written in part is cut off. `onTorn`: that failed, too. */
async function appendTo(file: string, records: readonly ArchiveRecord[], onTorn: () => void): Promise<void> {
  const bytes = await zipped(records.map(({ line }) => `${line}\n`).join(''))
  // Readable by the owner only: the file holds message bodies.
  const handle = await open(file, 'a', 0o600)
  try {
    const { size } = await handle.stat()
    try {
      await handle.appendFile(bytes)
      await handle.sync()
    } catch (err) {
      await handle.truncate(size).catch(onTorn)
      throw err
    }
    if (size === 0) await syncFolder(path.dirname(file))
  } finally {
    await handle.close()
  }
}

/** Syncs the name of a new file to the disk. */
async function syncFolder(dir: string): Promise<void> {
  const handle = await open(dir, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

export interface Found {
  file: string
  line: string
  archived: ArchivedTask
}

/**
 * The tasks with this number, newest POST first, each as it was archived last. There are several if the number was posted again after a
 * removal. Without `day` all files are read. `onTorn`: the end of this file was cut off; the lost tasks are still in the database,
 * or in another file.
 */
export async function findArchived(
  dir: string,
  taskNo: string,
  { day, onTorn }: { day?: string | undefined; onTorn?: (file: string) => void } = {}
): Promise<Found[]> {
  const found = new Map<string, Found>()
  // A cheap test before the parse: a number without escaped characters is in its line unchanged.
  const mark = /["\\\p{Cc}]/u.test(taskNo) ? '' : taskNo
  for (const name of (await readdir(dir)).toSorted()) {
    const [, ofDay] = form.exec(name) ?? []
    if (ofDay === undefined || (day !== undefined && ofDay !== day)) continue
    const file = path.join(dir, name)
    for await (const line of linesOf(file, onTorn)) {
      if (!line.includes(mark)) continue
      const archived = JSON.parse(line) as ArchivedTask
      if (archived.task.task_no !== taskNo) continue
      const other = found.get(archived.task.id)
      if (!other || other.archived.archivedAt <= archived.archivedAt)
        found.set(archived.task.id, { file, line, archived })
    }
  }
  return [...found.values()].toSorted((a, b) => (a.archived.task.id < b.archived.task.id ? 1 : -1))
}

/** Without node:readline, which also ends a line at U+2028: a body may hold that character. */
async function* linesOf(file: string, onTorn: ((file: string) => void) | undefined): AsyncGenerator<string> {
  const source = createReadStream(file)
  // A line may have many megabytes. It is copied with each piece.
  const text = source.pipe(createGunzip({ chunkSize: 1_048_576 })).setEncoding('utf8')
  source.on('error', err => text.destroy(err))
  let rest = ''
  try {
    for await (const chunk of text as AsyncIterable<string>) {
      const lines = (rest + chunk).split('\n')
      rest = lines.pop() ?? ''
      yield* lines
    }
  } catch (err) {
    if (!isTorn(err)) throw err
    onTorn?.(file)
  } finally {
    source.destroy()
  }
}

const isTorn = (err: unknown): boolean =>
  isError(err) && 'code' in err && (err.code === 'Z_BUF_ERROR' || err.code === 'Z_DATA_ERROR')
