// Completions that arrive together are written together: each by the statement for its kind, a delivery once per statement.
import t, { type Test } from 'tap'
import { completeReceipts, type HandledReceipt } from '../../src/db/receipts.ts'
import { completeSends, type SuccessfulSend } from '../../src/db/successful-sends.ts'
import { applyMoves, type ReceiptRow } from '../../src/db/transitions.ts'
import type { Sql } from '../../src/db/pool.ts'
import { completer, type Complete, type MeasuredCompletion } from '../../src/delivery/complete.ts'
import { only } from '../support/only.ts'
import { lockWaits, testDb } from '../support/postgres.ts'
import { standing, stored, tried } from '../support/rows.ts'
import { until } from '../support/until.ts'

interface Story {
  sql: Sql
  record: Complete
  /** Moves by name, as the metrics count them. */
  counted: { [name: string]: number }
  inFlight: () => Promise<string>
}

async function setup(t: Test, through = (sql: Sql): Sql => sql): Promise<Story> {
  const { sql } = await testDb(t, { max: 8 })
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
const send = (taskId: string): MeasuredCompletion => ({
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
const receipt = (taskId: string, attempt?: number): MeasuredCompletion => ({
  move: { ...key(taskId, attempt), name: 'receive', handledBy: 'receipt', ifStill: 'SENDING' },
  receipt: row(taskId, attempt),
  task
})
type Statement = [TemplateStringsArray, ...unknown[]]
/** Is it the statement of all moves without one of their own? */
const isGeneral = ([text]: Statement): boolean => text.join('').includes('any_of_round')
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

t.test('a flood of PROCESSING of one delivery costs one statement, and all hear the same', async t => {
  let statements = 0
  const { sql, record, counted } = await setup(t, whole => {
    const counting = (target: Sql, self: unknown, args: Statement): unknown => {
      if (isGeneral(args)) statements++
      return Reflect.apply(target, self, args)
    }
    return new Proxy(whole, { apply: counting })
  })
  const at = { state: 'AWAITING_RECEIPT', attempt: 5, triesLeft: 3, lost: 0, roundFrom: 3 } as const
  const ids = [
    await standing(sql, at, { inMs: 5_000, needsReceipt: true }),
    await standing(sql, at, { inMs: 5_000, needsReceipt: true })
  ] as const
  const processing = (id: string): MeasuredCompletion => ({
    move: { ...key(id), name: 'extend', afterMs: 60_000 },
    receipt: { ...row(id), result: 'PROCESSING' },
    task
  })
  const flood = Array.from({ length: 150 }, () => processing(ids[0]))
  const answers = await Promise.all([...flood, processing(ids[1]), receipt(ids[0])].map(record))
  t.same(new Set(answers), new Set(['moved']))
  t.equal(statements, 1)
  t.match(await stored(sql, ids[0]), { standing: { state: 'HANDLED' }, handledBy: 'receipt' })
  t.match(await stored(sql, ids[1]), { standing: { state: 'AWAITING_RECEIPT' } })
  t.equal((await receipts(sql)).length, 3, 'of each delivery one PROCESSING, and what ended it')
  t.same(counted, { extend: 151, receive: 1 })
})

t.test('receipts that move nothing are kept beside all others', async t => {
  const { sql, record, inFlight } = await setup(t)
  const id = await inFlight()
  const asked: MeasuredCompletion[] = [send(id), { move: null, receipt: row(id), task }, receipt(id)]
  t.same((await Promise.all(asked.map(record))).toSpliced(1, 1), ['moved', 'moved'])
  t.same(new Set((await receipts(sql)).map(one => one['applied'])), new Set([true, false]))
})

t.test('of three statements one loses its connection: what the others wrote is told as it was', async t => {
  let lost = 0
  const { sql, record, counted, inFlight } = await setup(t, whole => {
    // The general statement fails, once.
    const losing = (target: Sql, self: unknown, args: Statement): unknown => {
      if (lost > 0 || !isGeneral(args)) return Reflect.apply(target, self, args)
      lost++
      return Promise.reject(
        Object.assign(new Error('write CONNECTION_CLOSED'), { code: 'CONNECTION_CLOSED' })
      )
    }
    return new Proxy(whole, { apply: losing })
  })
  const ids = [await inFlight(), await inFlight(), await inFlight()] as const
  const retry: MeasuredCompletion = { move: { ...key(ids[2]), name: 'retry', afterMs: 1_000 }, task }
  const asked = [send(ids[0]), receipt(ids[1]), retry]
  t.same(await Promise.all(asked.map(record)), ['moved', 'moved', 'moved'])
  t.equal(lost, 1)
  t.match(await receipts(sql), only({ task_id: ids[1], applied: true }))
  t.same(counted, { sent: 1, receive: 1, retry: 1 })
})

t.test(
  'a delivery whose row somebody else holds keeps no other waiting, and is written once it is free',
  async t => {
    const { sql, record, counted, inFlight } = await setup(t)
    const held = await inFlight()
    let free = (): void => {}
    const freed = new Promise<void>(resolve => (free = resolve))
    let isHeld = (): void => {}
    const holding = new Promise<void>(resolve => (isHeld = resolve))
    const holder = sql.begin(async transaction => {
      await transaction`select from delivery where task_id = ${held} for update`
      isHeld()
      await freed
    })
    await holding
    const ids = [await inFlight(), await inFlight(), await inFlight(), await inFlight()] as const
    const retry = (id: string): MeasuredCompletion => ({
      move: { ...key(id), name: 'retry', afterMs: 1_000 },
      task
    })
    const sent = record(send(held))
    const together = [send(ids[0]), receipt(ids[1]), retry(ids[2])]
    t.same(await Promise.all(together.map(record)), ['moved', 'moved', 'moved'], 'of the same group')
    t.equal(await record(send(ids[3])), 'moved', 'of a later one')
    t.equal(await record(receipt(ids[0])), 'moved')
    t.match(await stored(sql, held), { standing: { state: 'IN_FLIGHT' } }, 'the row is still held')
    const answered = record(receipt(held))
    t.equal(await record(receipt(ids[3])), 'moved', 'also when the held one has another outcome')
    free()
    await holder
    const both = await Promise.all([sent, answered])
    t.ok(both.includes('moved'))
    t.match(await stored(sql, held), { standing: { state: 'HANDLED' }, handledBy: 'receipt' })
    t.equal((await sql`select from attempt where task_id = ${held}`).length, 1)
    t.equal((await receipts(sql)).filter(one => one['task_id'] === held).length, 1)
    t.equal(counted['retry'], 1)
  }
)

t.test('who finds a delivery again does not wait for its row', async t => {
  const { sql, record, inFlight } = await setup(t)
  const [held, free] = [await inFlight(), await inFlight()]
  const lost = (id: string): MeasuredCompletion => ({
    move: { ...key(id), name: 'lose' },
    task,
    skipLocked: true
  })
  await sql.begin(async transaction => {
    await transaction`select from delivery where task_id = ${held} for update`
    const [skipped, written] = await Promise.allSettled([record(lost(held)), record(lost(free))])
    t.match(skipped, { status: 'rejected', reason: { code: '55P03' } })
    t.match(written, { value: 'moved' })
  })
  await record.idle()
  t.match(await stored(sql, held), { standing: { state: 'IN_FLIGHT' } }, 'and not later')
  t.equal(await record(lost(held)), 'moved')
})

t.test('the limit is for rows: a table that a migration locks is waited for', async t => {
  const { sql, inFlight } = await setup(t)
  const ids = [await inFlight(), await inFlight(), await inFlight()] as const
  let written: Promise<unknown> | undefined
  await sql.begin(async transaction => {
    await transaction`lock table delivery in access exclusive mode`
    const limitMs = 1
    written = Promise.all([
      completeSends(sql, [send(ids[0]) as SuccessfulSend], limitMs),
      completeReceipts(sql, [receipt(ids[1]) as HandledReceipt], limitMs),
      applyMoves(sql, [{ move: { ...key(ids[2]), name: 'retry', afterMs: 1_000 } }], limitMs)
    ])
    written.catch(() => {})
    await until('all three wait', async () => (await lockWaits(sql)) === 3)
  })
  t.same(await written, [['moved'], ['moved'], ['moved']])
})

t.test('and a row is waited for no longer than the limit', async t => {
  const { sql, inFlight } = await setup(t)
  const id = await inFlight()
  await sql.begin(async transaction => {
    await transaction`select from delivery where task_id = ${id} for update`
    const limited = { code: '55P03' }
    await t.rejects(completeSends(sql, [send(id) as SuccessfulSend], 1), limited)
    await t.rejects(completeReceipts(sql, [receipt(id) as HandledReceipt], 1), limited)
    await t.rejects(applyMoves(sql, [{ move: { ...key(id), name: 'release' } }], 1), limited)
  })
  const settings = await Promise.all(Array.from({ length: 8 }, () => sql`show lock_timeout`))
  t.same(new Set(settings.map(([row]) => row?.['lock_timeout'])), new Set(['0']), 'for that statement alone')
})
