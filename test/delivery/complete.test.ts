// Completions that arrive together are written together: each by the statement for its kind, a delivery once per statement.
import t, { type Test } from 'tap'
import type { ReceiptRow } from '../../src/db/transitions.ts'
import type { Sql } from '../../src/db/pool.ts'
import { completer, type Complete, type CountedCompletion } from '../../src/delivery/complete.ts'
import { only } from '../support/only.ts'
import { testDb } from '../support/postgres.ts'
import { standing, stored, tried } from '../support/rows.ts'

interface Story {
  sql: Sql
  record: Complete
  /** Moves by name, as the metrics count them. */
  counted: { [name: string]: number }
  inFlight: () => Promise<string>
}

async function setup(t: Test, through = (sql: Sql): Sql => sql): Promise<Story> {
  const { sql } = await testDb(t)
  const counted: Story['counted'] = {}
  const metrics = {
    moved(name: string, written: boolean) {
      const key = written ? name : `${name} in vain`
      counted[key] = (counted[key] ?? 0) + 1
    },
    ended() {}
  }
  const at = { state: 'IN_FLIGHT', attempt: 5, triesLeft: 3, lost: 0, roundFrom: 3 } as const
  return {
    sql,
    record: completer({ sql: through(sql), metrics, giveUp: new AbortController().signal }),
    counted,
    inFlight: () => standing(sql, at, { inMs: 5_000, needsReceipt: true })
  }
}

const key = (taskId: string, attempt = 5) => ({ taskId, downstream: 'warehouse', attempt })
const task = { messageCode: 'order.paid' }
const send = (taskId: string): CountedCompletion => ({
  move: { ...key(taskId), name: 'sent', afterMs: 60_000 },
  attempt: tried(),
  task
})
const row = (taskId: string, attempt?: number): ReceiptRow => ({
  ...key(taskId, attempt),
  result: 'HANDLED',
  reason: null,
  data: null,
  remote: '10.0.0.1'
})
const receipt = (taskId: string, attempt?: number): CountedCompletion => ({
  move: { ...key(taskId, attempt), name: 'receive', handledBy: 'receipt', sending: true },
  receipt: row(taskId, attempt),
  task
})
const receipts = (sql: Sql) => sql`select task_id, attempt, applied from receipt order by id`

t.test(
  'a receipt that is here before its send was written: both are written, and both are told so',
  async t => {
    const { sql, record, counted, inFlight } = await setup(t)
    const ids = [await inFlight(), await inFlight(), await inFlight()] as const
    const asked = [send(ids[0]), send(ids[1]), receipt(ids[1]), receipt(ids[2])]
    t.same(await Promise.all(asked.map(record)), ['moved', 'moved', 'moved', 'moved'])
    t.match(await stored(sql, ids[0]), { standing: { state: 'AWAITING_RECEIPT' }, deliveredAt: Date })
    t.match(await stored(sql, ids[1]), {
      standing: { state: 'HANDLED' },
      handledBy: 'receipt',
      deliveredAt: Date
    })
    t.match(await stored(sql, ids[2]), {
      standing: { state: 'HANDLED' },
      handledBy: 'receipt',
      deliveredAt: null
    })
    t.same(new Set((await receipts(sql)).map(one => one['task_id'])), new Set([ids[1], ids[2]]))
    t.same(counted, { sent: 2, receive: 2 })
  }
)

t.test('the receipt of an earlier attempt comes after the send of this one', async t => {
  const { sql, record, inFlight } = await setup(t)
  const id = await inFlight()
  t.same(await Promise.all([send(id), receipt(id, 4)].map(record)), ['moved', 'moved'])
  t.match(await stored(sql, id), { standing: { state: 'HANDLED', attempt: 5 }, handledBy: 'receipt' })
  t.match(await receipts(sql), only({ attempt: 4, applied: true }))
})

t.test('of 50 equal receipts beside their send one counts', async t => {
  const { sql, record, counted, inFlight } = await setup(t)
  const id = await inFlight()
  const asked = [send(id), ...Array.from({ length: 50 }, () => receipt(id))]
  const [first, second, ...others] = await Promise.all(asked.map(record))
  t.same([first, second], ['moved', 'moved'])
  t.same(new Set(others), new Set(['stale']), 'who was overtaken looks again')
  t.equal((await receipts(sql)).length, 1)
  t.same(counted, { sent: 1, receive: 1, 'receive in vain': 49 })
})

t.test('receipts that move nothing are kept beside all others', async t => {
  const { sql, record, inFlight } = await setup(t)
  const id = await inFlight()
  const asked: CountedCompletion[] = [send(id), { move: null, receipt: row(id), task }, receipt(id)]
  t.same((await Promise.all(asked.map(record))).toSpliced(1, 1), ['moved', 'moved'])
  t.same(new Set((await receipts(sql)).map(one => one['applied'])), new Set([true, false]))
})

t.test('of three statements one loses its connection: what the others wrote is told as it was', async t => {
  let lost = 0
  const { sql, record, counted, inFlight } = await setup(t, whole => {
    // The general statement fails, once.
    const losing = (target: Sql, self: unknown, args: [TemplateStringsArray, ...unknown[]]): unknown => {
      if (lost > 0 || !args[0].join('').includes('any_of_round')) return Reflect.apply(target, self, args)
      lost++
      return Promise.reject(
        Object.assign(new Error('write CONNECTION_CLOSED'), { code: 'CONNECTION_CLOSED' })
      )
    }
    return new Proxy(whole, { apply: losing })
  })
  const ids = [await inFlight(), await inFlight(), await inFlight()] as const
  const retry: CountedCompletion = { move: { ...key(ids[2]), name: 'retry', afterMs: 1_000 }, task }
  const asked = [send(ids[0]), receipt(ids[1]), retry]
  t.same(await Promise.all(asked.map(record)), ['moved', 'moved', 'moved'])
  t.equal(lost, 1)
  t.match(await receipts(sql), only({ task_id: ids[1], applied: true }))
  t.same(counted, { sent: 1, receive: 1, retry: 1 })
})
