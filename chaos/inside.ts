// White box, beside the judge: checks in the database itself that are not possible through the API. Two once a second, and at the end every
// change of a delivery is replayed through the table of moves.
import type postgres from 'postgres'
import { isInfrastructure } from '../src/db/pool.ts'
import { explainChange, recordChanges, type Change } from '../model/replay.ts'
import type { InsideFinding } from './history.ts'
import { leaseMs, longestBackoffMs, receiptTimeoutMs } from './terms.ts'

/** Start times of the load are at most this far in the future. */
const latestStartMs = 7_000
const farthestMs = Math.max(leaseMs, receiptTimeoutMs, longestBackoffMs, latestStartMs) + 1_000

interface Row {
  task_no: string
  downstream: string
  attempt: number
  orphan: boolean
}

/**
 * I10: a SENDING delivery has a next action, and it is not far away. I32: an attempt number never falls. Returns how many samples held
 * deliveries. Rejects when a query is wrong.
 */
export async function lookInside(
  sql: postgres.Sql,
  stop: AbortSignal,
  findings: InsideFinding[]
): Promise<number> {
  let samples = 0
  const attempts = new Map<string, number>()
  const reported = new Set<string>()
  const report = (invariant: InsideFinding['invariant'], { task_no, downstream }: Row, detail: string) => {
    if (reported.has(invariant + task_no)) return
    reported.add(invariant + task_no)
    findings.push({ invariant, taskNo: task_no, detail: `${downstream}: ${detail}` })
  }
  let isRecording = false
  while (!stop.aborted) {
    isRecording ||= await record(sql)
    const rows = await sample(sql)
    if (rows.length > 0) samples++
    for (const row of rows) {
      const key = `${row.task_no} ${row.downstream}`
      const before = attempts.get(key) ?? 0
      if (row.attempt < before) report('I32', row, `attempt fell from ${before} to ${row.attempt}`)
      attempts.set(key, row.attempt)
      if (row.orphan) report('I10', row, 'SENDING without a clock, or with one that is too far away')
    }
    await new Promise(resolve => setTimeout(resolve, 1_000))
  }
  await replay(sql, (row, detail) => report('move', row, detail))
  return samples
}

/** False while the server is away. */
const record = (sql: postgres.Sql): Promise<boolean> =>
  sql.unsafe(recordChanges).then(
    () => true,
    (err: unknown) => {
      if (isInfrastructure(err)) return false
      throw err
    }
  )

const replayedAtOnce = 5_000

/** What no move of the table explains, whichever process and version wrote it. */
async function replay(sql: postgres.Sql, report: (row: Row, detail: string) => void): Promise<void> {
  for (let from = '0'; ;) {
    const changes = await sql<(Change & Row & { nth: string })[]>`
      select c.nth::text, c.was, c."is", t.task_no, c."is" ->> 'downstream' as downstream
      from delivery_change c join task t on t.id = (c."is" ->> 'task_id')::uuid
      where c.nth > ${from}::bigint order by c.nth limit ${replayedAtOnce}`
    for (const { was, is, ...row } of changes)
      if (explainChange({ was, is }) === undefined)
        report(row, `no move makes ${JSON.stringify(is)} of ${JSON.stringify(was)}`)
    from = changes.at(-1)?.nth ?? from
    if (changes.length < replayedAtOnce) return
  }
}

/**
 * Empty while the nemesis keeps the server down. clock_timestamp is read after the snapshot was taken: if the server is stopped for seconds
 * between now() and the snapshot, what others wrote meanwhile looks too far away.
 */
function sample(sql: postgres.Sql): Promise<Row[]> {
  const query = sql<Row[]>`
    select t.task_no, d.downstream, d.attempt,
      d.status = 0 and (d.next_action_at is null
        or d.phase <> 'BLOCKED' and d.next_action_at > clock_timestamp() + ${farthestMs} * interval '1 ms') as orphan
    from delivery d join task t on t.id = d.task_id
    where d.updated_at > now() - interval '10 s' or d.status = 0`
  return query.catch((err: unknown) => {
    if (isInfrastructure(err)) return []
    throw err
  })
}
