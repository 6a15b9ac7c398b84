// Compares the tasks that a downstream reports as handled with those that are HANDLED here.
import { sql, type SQL } from './drizzle.ts'
import { uuidAt, lowestUuid } from '../domain/ids.ts'
import { statusWord, type DifferenceKind, type Phase, type Reason, type Status } from '../domain/types.ts'
import { textArray } from './arrays.ts'
import { ofCodes } from './page.ts'
import type { Reads } from './reads.ts'
import { present } from '../domain/optional-members.ts'

/** Selects our deliveries to compare: of tasks created from `from` on, and before `to`. */
export interface Compared {
  downstream: string
  /** Null: of all. */
  messageCodes: readonly string[] | null
  from: Date
  to: Date
}

export interface Digest {
  count: number
  /** The exclusive or of the first 64 bits of the MD5 of each taskNo, in hex. */
  hash: string
}

export interface Question extends Compared {
  limit: number
  /** The beginning of the MD5 of a taskNo. */
  bucket?: string
  taskNos?: readonly string[]
  /** By bucket, all of one length. */
  digest?: Readonly<Record<string, Digest>>
  cursor?: string
}

interface Difference {
  taskNo: string
  kind: DifferenceKind
  status?: Status
  phase?: Phase
  reason?: Reason
  handledAt?: string
}

export interface Differences {
  differences: Difference[]
  nextCursor?: string
}

export interface Digests {
  buckets: ({ bucket: string; same: boolean } & Digest)[]
}

/** The most deliveries that one digest reads. More would occupy a connection for too long. */
const mostCompared = 1_000_000

/** HANDLED deliveries of the window, by the id of their task, which begins with its time. */
const handled = ({ downstream, messageCodes, from, to }: Compared): SQL => sql`
  delivery d join task t on t.id = d.task_id
  where d.downstream = ${downstream} and d.status = 1
    and d.task_id >= ${uuidAt(from)}::uuid and d.task_id < ${uuidAt(to)}::uuid and ${ofCodes(messageCodes, 't.message_code')}`

export function reconcile(reads: Reads, question: Question): Promise<Differences | Digests | 'too_many'> {
  return question.digest
    ? compareDigests(reads, question, question.digest)
    : compareTaskNos(reads, question, question.taskNos ?? [])
}

async function compareDigests(
  { db }: Reads,
  question: Question,
  theirs: Readonly<Record<string, Digest>>
): Promise<Digests | 'too_many'> {
  const buckets = Object.keys(theirs)
  const rows = await db.execute<{ bucket: string; count: number; hash: string; compared: number }>(sql`
    select left(h, ${buckets[0]?.length ?? 0}::int) as bucket, count(*)::int as count,
      lpad(to_hex(bit_xor(('x' || left(h, 16))::bit(64)::bigint)), 16, '0') as hash,
      (sum(count(*)) over ())::int as compared
    from (select md5(t.task_no) as h from ${handled(question)} limit ${mostCompared + 1}) as ours
    group by 1`)
  if ((rows[0]?.compared ?? 0) > mostCompared) return 'too_many'
  const ours = new Map(rows.map(row => [row.bucket, row]))
  return {
    buckets: buckets.toSorted().map(bucket => {
      const { count = 0, hash = '0'.repeat(16) } = ours.get(bucket) ?? {}
      const same = count === theirs[bucket]?.count && hash === theirs[bucket].hash
      return { bucket, same, count, hash }
    })
  }
}

/** First the tasks that the downstream misses, by id, then those that are not HANDLED here, by taskNo. */
async function compareTaskNos(
  reads: Reads,
  question: Question,
  taskNos: readonly string[]
): Promise<Differences> {
  const { limit, cursor = 'm:' } = question
  const after = cursor.slice(2)
  const missing = cursor.startsWith('m:')
    ? await findMissing(reads, question, taskNos, after === '' ? null : after)
    : []
  const page: Difference[] = missing.slice(0, limit).map(({ taskNo, handledAt }) => ({
    taskNo,
    kind: 'MISSING',
    status: 'HANDLED',
    handledAt: new Date(handledAt).toISOString()
  }))
  if (missing.length > limit) return { differences: page, nextCursor: `m:${missing[limit - 1]?.taskId}` }
  const room = limit - page.length
  const from = cursor.startsWith('t:') ? after : ''
  const others = await findNotHandled(reads, question, taskNos, from, room + 1)
  page.push(...others.slice(0, room).map(differenceOf))
  if (others.length <= room) return { differences: page }
  return { differences: page, nextCursor: `t:${room === 0 ? from : (others[room - 1]?.taskNo ?? '')}` }
}

async function findMissing(
  { db }: Reads,
  question: Question,
  taskNos: readonly string[],
  after: string | null
): Promise<{ taskId: string; taskNo: string; handledAt: string }[]> {
  const { bucket = '' } = question
  return await db.execute<{ taskId: string; taskNo: string; handledAt: string }>(sql`
    select d.task_id as "taskId", t.task_no as "taskNo", d.handled_at as "handledAt"
    from ${handled(question)}
      and d.task_id > ${after ?? lowestUuid}::uuid
      and left(md5(t.task_no), ${bucket.length}::int) = ${bucket}
      and not exists (select from unnest(${textArray(taskNos)}::text[]) as theirs (task_no) where theirs.task_no = t.task_no)
    order by d.task_id
    limit ${question.limit + 1}`)
}

/** A task that a downstream has handled and that is not HANDLED here. `delivery` null: the task has none to this downstream. */
interface NotHandled {
  taskNo: string
  taskId: string | null
  messageCode: string | null
  createdAt: Date | null
  attempt: number
  delivery: { status: Status; phase: Phase | null; reason: Reason | null } | null
}

/** By taskNo, after `after`. Tasks of any time, not only of the window. */
export async function findNotHandled(
  { db }: Reads,
  compared: Compared,
  taskNos: readonly string[],
  after: string,
  limit: number
): Promise<NotHandled[]> {
  const rows = await db.execute<{
    task_no: string
    id: string | null
    message_code: string | null
    created_at: string | null
    attempt: number | null
    status: number | null
    phase: Phase | null
    reason: Reason | null
  }>(sql`
    select theirs.task_no, t.id, t.message_code, t.created_at, d.attempt, d.status, d.phase, d.reason
    from (select distinct task_no from unnest(${textArray(taskNos)}::text[]) as theirs (task_no)) theirs
      left join task t on t.task_no = theirs.task_no and ${ofCodes(compared.messageCodes, 't.message_code')}
      left join delivery d on d.task_id = t.id and d.downstream = ${compared.downstream}
    where d.status is distinct from 1 and theirs.task_no collate "C" > ${after}
    order by theirs.task_no collate "C"
    limit ${limit}`)
  return rows.map(row => ({
    taskNo: row.task_no,
    taskId: row.id,
    messageCode: row.message_code,
    createdAt: row.created_at === null ? null : new Date(row.created_at),
    attempt: row.attempt ?? 0,
    delivery:
      row.status === null ? null : { status: statusWord(row.status), phase: row.phase, reason: row.reason }
  }))
}

const differenceOf = ({ taskNo, delivery }: NotHandled): Difference =>
  delivery === null
    ? { taskNo, kind: 'UNKNOWN' }
    : {
        taskNo,
        kind: 'DIFFERS',
        status: delivery.status,
        ...present('phase', delivery.phase),
        ...present('reason', delivery.reason)
      }

/** HANDLED deliveries of the window that were handled before `handledBefore`, by the id of their task, after `after`. */
export async function listHandled(
  { db }: Reads,
  compared: Compared,
  handledBefore: string,
  after: string,
  limit: number
): Promise<{ taskId: string; taskNo: string; attempt: number }[]> {
  return await db.execute<{ taskId: string; taskNo: string; attempt: number }>(sql`
    select d.task_id as "taskId", t.task_no as "taskNo", d.attempt from ${handled(compared)}
      and d.handled_at < ${handledBefore}::timestamptz and d.task_id > ${after}::uuid
    order by d.task_id
    limit ${limit}`)
}
