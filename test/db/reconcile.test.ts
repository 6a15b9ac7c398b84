import { createHash } from 'node:crypto'
import t from 'tap'
import {
  reconcile,
  type Differences,
  type Digest,
  type Digests,
  type Question
} from '../../src/db/reconcile.ts'
import { only } from '../support/only.ts'
import { readsOf } from '../support/postgres.ts'
import { setup } from '../support/setup.ts'

const md5 = (text: string): string => createHash('md5').update(text).digest('hex')

/** The digest of a receiver, as docs/reconcile.md describes it. */
function digestOf(taskNos: readonly string[], length: number): Record<string, Digest> {
  const all: Record<string, { count: number; bits: bigint }> = {}
  for (const taskNo of taskNos) {
    const hash = md5(taskNo)
    const one = (all[hash.slice(0, length)] ??= { count: 0, bits: 0n })
    one.count++
    one.bits ^= BigInt(`0x${hash.slice(0, 16)}`)
  }
  return Object.fromEntries(
    Object.entries(all).map(([bucket, { count, bits }]) => [
      bucket,
      { count, hash: bits.toString(16).padStart(16, '0') }
    ])
  )
}

const hour = 3_600_000
const window = (): Pick<Question, 'downstream' | 'messageCodes' | 'from' | 'to' | 'limit'> => ({
  downstream: 'warehouse',
  messageCodes: null,
  from: new Date(Date.now() - hour),
  to: new Date(Date.now() + hour),
  limit: 200
})

t.test('what they miss, what they have that is not HANDLED here, and what we do not know', async t => {
  const { post, quiet, downstream, sql, remove } = await setup(t, {
    downstreams: { warehouse: {}, points: { when: ({ task }) => task.sceneType === 'vip' } }
  })
  const reads = readsOf(t, sql)
  const handled = [await post(), await post(), await post()]
  await quiet()
  downstream.usual = { kind: 'failed', reason: 'timeout' }
  const waiting = await post()
  const failed = await post({ retryTimes: 1 })
  const deleted = await post()
  await quiet()
  await remove(deleted)

  const ask = async (more: Partial<Question>) =>
    (await reconcile(reads, { ...window(), ...more })) as Differences
  t.same(await ask({ taskNos: handled }), { differences: [] }, 'they agree')
  const [first = '', second = '', third = ''] = handled
  const theirs = [second, waiting, failed, deleted, 'order:never', 'order:never']
  const { differences } = await ask({ taskNos: theirs })
  t.match(
    differences.toSorted((a, b) => (a.taskNo < b.taskNo ? -1 : 1)),
    [
      { taskNo: first, kind: 'MISSING', status: 'HANDLED', handledAt: /Z$/ },
      { taskNo: third, kind: 'MISSING', status: 'HANDLED' },
      { taskNo: waiting, kind: 'DIFFERS', status: 'SENDING', phase: 'WAITING' },
      { taskNo: failed, kind: 'DIFFERS', status: 'FAILED', reason: 'SEND_EXHAUSTED' },
      { taskNo: deleted, kind: 'DIFFERS', status: 'DELETED', reason: 'DELETED' },
      { taskNo: 'order:never', kind: 'UNKNOWN' }
    ].toSorted((a, b) => (a.taskNo < b.taskNo ? -1 : 1))
  )
  t.equal(differences.length, 6)

  const paged = []
  let cursor: string | undefined
  for (let page = 0; page < 10; page++) {
    const answer = await ask({ taskNos: theirs, limit: 1, ...(cursor === undefined ? {} : { cursor }) })
    paged.push(...answer.differences)
    cursor = answer.nextCursor
    if (cursor === undefined) break
  }
  t.same(paged, differences, 'page by page the same, each once')

  const others = await ask({ messageCodes: ['stock.moved'], taskNos: handled })
  t.same(
    others.differences.map(one => one.kind),
    ['UNKNOWN', 'UNKNOWN', 'UNKNOWN'],
    'a bound key sees its own'
  )
  t.same(await ask({ messageCodes: ['stock.moved'], taskNos: [] }), { differences: [] })
  const before = { from: new Date(Date.now() - 2 * hour), to: new Date(Date.now() - hour) }
  t.same(await ask({ ...before, taskNos: handled }), { differences: [] }, 'tasks of another time do no harm')
  t.match(await ask({ downstream: 'points', taskNos: [first] }), {
    differences: only({ taskNo: first, kind: 'DIFFERS', status: 'DELETED', reason: 'SKIPPED' })
  })
})

t.test('a digest narrows to the one that is missing', async t => {
  const { sql } = await setup(t)
  const reads = readsOf(t, sql)
  const n = 20_000
  await sql`
    insert into task (id, task_no, message_code, scene_type, message_body, content_hash, created_by)
    select (lpad(to_hex((extract(epoch from now()) * 1000)::bigint), 12, '0') || '7000' || '8000' || lpad(to_hex(i), 12, '0'))::uuid,
      'bulk-' || i, 'order.paid', '', '{}', '', 'test'
    from generate_series(1, ${n}::int) i`
  await sql`
    insert into delivery (task_id, downstream, status, attempt, tries_left, needs_receipt, handled_at, handled_by)
    select id, 'warehouse', 1, 1, 9, false, now(), 'send' from task`
  const ours = Array.from({ length: n }, (_, i) => `bulk-${i + 1}`)
  const theirs = ours.filter(taskNo => taskNo !== 'bulk-4711')
  const ask = async (digest: Record<string, Digest>) =>
    ((await reconcile(reads, { ...window(), digest })) as Digests).buckets

  t.match(await ask(digestOf(ours, 0)), only({ bucket: '', same: true, count: n }))
  t.match(await ask(digestOf(theirs, 0)), only({ same: false, count: n }))
  const differing = (await ask(digestOf(theirs, 2))).filter(one => !one.same)
  t.same(
    differing.map(one => one.bucket),
    [md5('bulk-4711').slice(0, 2)],
    'one request of 256 buckets finds it'
  )
  const bucket = differing[0]?.bucket ?? ''
  const inBucket = theirs.filter(taskNo => md5(taskNo).startsWith(bucket))
  t.ok(inBucket.length < 200)
  t.match(await reconcile(reads, { ...window(), bucket, taskNos: inBucket }), {
    differences: only({ taskNo: 'bulk-4711', kind: 'MISSING' })
  })
  const swapped = theirs.map(taskNo => (taskNo === 'bulk-1' ? 'bulk-one' : taskNo)).concat('bulk-4711')
  t.match(await ask(digestOf(swapped, 0)), only({ same: false, count: n }), 'as many, and others')
})
