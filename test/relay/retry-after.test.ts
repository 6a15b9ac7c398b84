import { Readable } from 'node:stream'
import t from 'tap'
import { answer, fakeAckbox, type FakeAckbox, type Script } from '../producer/fake-ackbox.ts'
import { only } from '../support/only.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { until } from '../support/until.ts'
import { importRows } from '../../src/relay/import.ts'
import { postRows } from '../../src/relay/post.ts'
import { relay, relayOnce } from '../../src/relay/relay.ts'
import type { RelayRow } from '../../src/relay/source.ts'

const row: RelayRow = {
  id: '1',
  taskNo: 'order-1',
  messageCode: 'order.paid',
  messageBody: '1',
  sceneType: null,
  deliverStartTime: null,
  delayMs: null,
  deliverBefore: null,
  orderingKey: null,
  needCallback: null,
  retryTimes: null,
  bizType: null,
  bizKey: null,
  uniqueBiz: null,
  after: null,
  extend: null,
  traceparent: null
}
const nothing = (): void => {}
const never = new AbortController().signal

t.test('a Retry-After of more than an hour is ignored, as the client of producers does', async t => {
  const fake = await fakeAckbox(t)
  const rows: [header: string | undefined, retryAfterMs: number | undefined][] = [
    ['0', 0],
    ['7', 7_000],
    ['3600', 3_600_000],
    ['86400', undefined],
    ['2592000', undefined],
    ['-1', undefined],
    ['soon', undefined],
    [undefined, undefined]
  ]
  for (const [header, retryAfterMs] of rows) {
    fake.script = (_, response) =>
      answer(response, 503, 'maintenance', header === undefined ? {} : { 'retry-after': header })
    await t.rejects(
      postRows({ url: fake.url, key: undefined, timeoutMs: 10_000 }, [row]),
      { name: 'TargetAway', retryAfterMs },
      String(header)
    )
  }
})

t.test(
  'a request that gets no answer is told with its limit, and not with the number of an exception',
  async t => {
    const fake = await fakeAckbox(t)
    fake.script = () => true
    await t.rejects(postRows({ url: fake.url, key: undefined, timeoutMs: 50 }, [row]), {
      name: 'TargetAway',
      message: `${fake.url} cannot be reached: no answer within 50 ms`
    })
    fake.script = (_, response) => {
      response.destroy()
      return true
    }
    await t.rejects(postRows({ url: fake.url, key: undefined, timeoutMs: 10_000 }, [row]), {
      message: `${fake.url} cannot be reached: UND_ERR_SOCKET`
    })
  }
)

/** An outbox that has this row at each look. */
const sourceOf = (given: typeof row, removed: number): Parameters<typeof relay>[0]['source'] => ({
  check: () => Promise.resolve(),
  shards: () => Promise.resolve([]),
  lastId: () => Promise.resolve(undefined),
  async postShare(_, __, post) {
    await post([given])
    return { seen: 1, removed }
  },
  waiting: () => Promise.resolve({ rows: 1, oldestS: 0, rejected: 0 }),
  retryRejected: () => Promise.resolve(0),
  close: () => Promise.resolve()
})

t.test('a maintenance page that asks for thirty days does not stop the relay, nor make it spin', async t => {
  const fake = await fakeAckbox(t)
  fake.script = (_, response) => answer(response, 503, 'maintenance', { 'retry-after': '2592000' })
  const waits: unknown[] = []
  const stop = new AbortController()
  const running = relay(
    {
      source: sourceOf(row, 1),
      target: { url: fake.url, key: undefined, timeoutMs: 10_000 },
      log: {
        debug: nothing,
        info: nothing,
        error: nothing,
        warn: (about: { waitMs?: number }) => waits.push(about.waitMs)
      },
      batch: 10,
      concurrency: 1,
      onBatch: nothing,
      onHealth: nothing
    },
    stop.signal
  )
  await until('it has tried three times', () => waits.length >= 3)
  stop.abort()
  await running
  for (const waitMs of waits) t.ok(Number(waitMs) <= 30_000, `it waits ${String(waitMs)} ms`)
})

t.test('relayOnce says how many rows stay because Ackbox answers 500 for them', async t => {
  const fake = await fakeAckbox(t)
  fake.script = poisoned
  const deps = {
    source: { ...sourceOf({ ...row, taskNo: 'poison' }, 0), lastId: () => Promise.resolve('1') },
    target: { url: fake.url, key: undefined, timeoutMs: 10_000 },
    log: { debug: nothing, info: nothing, error: nothing, warn: nothing },
    batch: 10,
    concurrency: 1,
    onBatch: nothing,
    onHealth: nothing
  }
  t.same(await relayOnce(deps, never), { removed: 0, kept: 1 })
})

t.test('an import waits no longer than its patience, whatever Ackbox asks for', async t => {
  const fake = await fakeAckbox(t)
  fake.script = (_, response) => answer(response, 503, 'maintenance', { 'retry-after': '3600' })
  let tries = 0
  const began = stopwatch(t)
  const importing = importRows(
    {
      target: { url: fake.url, key: undefined, timeoutMs: 10_000 },
      reject: nothing,
      onBatch: nothing,
      onAway: () => tries++,
      patienceMs: 500
    },
    Readable.from([[row]]),
    never
  )
  await t.rejects(importing, { name: 'TargetAway' })
  t.ok(tries > 0, 'it has tried again')
  t.ok(began() < 10_000)
})

const internal = { type: '', title: 'Internal error', status: 500, code: 'INTERNAL' }
/** Answers 500 for the tasks `poison…`, 422 for one that waits for it, and 201 for all others. */
const poisoned: Script = ({ text }, response) => {
  const { tasks } = JSON.parse(text) as { tasks: { taskNo: string }[] }
  const results = tasks.map(({ taskNo }) => {
    if (taskNo.startsWith('poison')) return { taskNo, ...internal }
    return taskNo === 'dependent'
      ? { taskNo, status: 422, code: 'INVALID', title: 'no such task' }
      : { taskNo, status: 201 }
  })
  return results.every(one => one.status === 500)
    ? answer(response, 500, internal)
    : answer(response, 200, { results })
}
const taskNosOf = (fake: FakeAckbox): string[][] =>
  fake.seen.map(({ text }) => (JSON.parse(text) as { tasks: RelayRow[] }).tasks.map(one => one.taskNo))

t.test(
  'a task that Ackbox cannot store stays, with those of its key that would be refused or come later',
  async t => {
    const fake = await fakeAckbox(t)
    fake.script = poisoned
    const target = { url: fake.url, key: undefined, timeoutMs: 10_000 }
    const large = JSON.stringify('x'.repeat(4_000_000))
    const rows = [
      { ...row, taskNo: 'one' },
      { ...row, taskNo: 'poison', orderingKey: 'k' },
      { ...row, taskNo: 'same key', orderingKey: 'k' },
      { ...row, taskNo: 'dependent', orderingKey: 'k' },
      { ...row, taskNo: 'large', messageBody: large },
      { ...row, taskNo: 'large of the key', messageBody: large, orderingKey: 'k' },
      { ...row, taskNo: 'large of another', messageBody: large, orderingKey: 'other' }
    ]
    t.match(
      await postRows(target, rows),
      only(
        { kind: 'accepted' },
        { kind: 'kept', problem: /INTERNAL/ },
        { kind: 'accepted' },
        { kind: 'kept' },
        { kind: 'accepted' },
        { kind: 'kept' },
        { kind: 'accepted' }
      )
    )
    t.same(taskNosOf(fake), [['one', 'poison', 'same key', 'dependent', 'large'], ['large of another']])
    for (const count of [1, 2])
      t.match(
        await postRows(target, Array(count).fill({ ...row, taskNo: 'poison' })),
        only(...Array(count).fill({ kind: 'kept', problem: /INTERNAL/ })),
        'alone it is the whole answer'
      )
  }
)

t.test('a task that Ackbox cannot store holds up neither the relay nor the rest of an import', async t => {
  const fake = await fakeAckbox(t)
  fake.script = poisoned
  const target = { url: fake.url, key: undefined, timeoutMs: 10_000 }
  const warned: string[] = []
  const healths: (string | null)[] = []
  const stop = new AbortController()
  const running = relay(
    {
      source: sourceOf({ ...row, taskNo: 'poison' }, 0),
      target,
      log: {
        debug: nothing,
        info: nothing,
        error: nothing,
        warn: (_: object, message: string) => warned.push(message)
      },
      batch: 10,
      concurrency: 1,
      onBatch: nothing,
      onHealth: fault => healths.push(fault)
    },
    stop.signal
  )
  await until('it has looked again and again', () => fake.seen.length >= 4)
  stop.abort()
  await running
  t.same(warned, ['relay.kept'])
  t.same(new Set(healths), new Set([null]))

  const refused: string[] = []
  const sum = await importRows(
    {
      target,
      reject: ({ taskNo }, problem) => refused.push(`${taskNo} ${problem}`),
      onBatch: nothing,
      onAway: nothing,
      patienceMs: 300
    },
    Readable.from([
      [row, { ...row, taskNo: 'poison' }, { ...row, taskNo: 'poison-2' }],
      [{ ...row, taskNo: 'order-2' }]
    ]),
    never
  )
  t.same(sum, { created: 2, known: 0, rejected: 2 })
  t.match(refused, only(/^poison .*INTERNAL/, /^poison-2 .*INTERNAL/))
})

t.test(
  'a firewall that refuses one row for its content holds up neither the relay nor the rest of an import',
  async t => {
    for (const [status, page] of [
      [403, '<html>Forbidden'],
      [405, '<html>blocked'],
      [200, '<html>Request Rejected']
    ] as const) {
      const fake = await fakeAckbox(t)
      const posted: string[] = []
      let isAway = false
      fake.script = ({ text }, response) => {
        if (isAway || text.includes('drop table')) return answer(response, status, page)
        const { tasks } = JSON.parse(text) as { tasks: { taskNo: string }[] }
        posted.push(...tasks.map(one => one.taskNo))
        return answer(response, 200, { results: tasks.map(({ taskNo }) => ({ taskNo, status: 201 })) })
      }
      const target = { url: fake.url, key: undefined, timeoutMs: 10_000 }
      const numbers = Array.from({ length: 50 }, (_, index) => `t-${index}`)
      const rows: RelayRow[] = numbers.map(taskNo => ({
        ...row,
        taskNo,
        orderingKey: ['t-17', 't-40'].includes(taskNo) ? 'k' : null,
        messageBody: taskNo === 't-17' ? '"; drop table t"' : '1'
      }))
      const problem = new RegExp(`answered .*${page}|not that of Ackbox: ${page}`)
      t.match(
        await postRows(target, rows),
        only(
          ...numbers.map(taskNo =>
            taskNo === 't-17' ? { kind: 'kept', problem } : { kind: taskNo === 't-40' ? 'kept' : 'accepted' }
          )
        )
      )
      t.same(posted.toSorted(), numbers.filter(no => !['t-17', 't-40'].includes(no)).toSorted())
      const rejected: string[] = []
      const sum = await importRows(
        {
          target,
          reject: (one, why) => rejected.push(`${one.taskNo} ${why}`),
          onBatch: nothing,
          onAway: nothing,
          patienceMs: 0
        },
        Readable.from([rows]),
        never
      )
      t.match(sum, { created: 49, rejected: 1 })
      t.match(rejected, only(/^t-17 .*<html>/))

      isAway = true
      const before = fake.seen.length
      await t.rejects(postRows(target, rows), { message: problem }, 'where all is refused, Ackbox is away')
      t.equal(fake.seen.length - before, 2, 'and no row is posted alone')
    }
  }
)
