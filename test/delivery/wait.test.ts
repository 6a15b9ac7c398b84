import t from 'tap'
import { longPolls } from '../../src/delivery/long-polls.ts'
import { delivered } from '../support/scripted.ts'
import { taskRequest } from '../support/task-request.ts'
import { setup } from '../support/setup.ts'

const log = { debug() {}, info() {}, warn() {}, error() {} }
const never = new AbortController().signal

t.test(
  'who waits is answered when the task comes to rest, whichever way, and unknown ones at once',
  async t => {
    const { sql, post, downstream, quiet, remove } = await setup(t)
    const polls = longPolls({ sql, log })
    t.teardown(() => polls.stop())
    downstream.holds = true
    const [handled, deleted] = [await post(), await post()]
    const seen = await downstream.received(2)
    const both = Promise.all([handled, deleted].map(taskNo => polls.wait(taskNo, 'shop', 30_000, never)))
    downstream.answer(
      delivered,
      seen.findIndex(one => one.taskNo === handled)
    )
    await remove(deleted)
    t.same(await both, [undefined, undefined])
    t.equal(await polls.wait(handled, 'shop', 30_000, never), undefined)
    t.equal(await polls.wait('nobody', 'shop', 30_000, never), undefined)
    downstream.answer()
    await quiet()
  }
)

t.test('the timeout, a caller who hangs up and a stop each end the wait', async t => {
  const { sql, post, queue } = await setup(t)
  const polls = longPolls({ sql, log })
  queue.mode = 'hold'
  const taskNo = await post()
  t.equal(await polls.wait(taskNo, 'shop', 50, never), undefined)
  const gone = new AbortController()
  const one = polls.wait(taskNo, 'shop', 30_000, gone.signal)
  gone.abort()
  t.equal(await one, undefined)
  // The stop also ends a wait whose first read is still running.
  const two = polls.wait(taskNo, 'shop', 30_000, never)
  polls.stop()
  t.equal(await two, undefined)
  t.equal(await polls.wait(taskNo, 'shop', 30_000, never), undefined)
})

t.test('a thousand may wait, also when all of them come at once, and other keys have room then', async t => {
  const { sql, accept, queue } = await setup(t)
  queue.mode = 'hold'
  const polls = longPolls({ sql, log })
  const one = taskRequest()
  await accept(one)
  const come = (owner: string, count: number) =>
    Array.from({ length: count }, () => polls.wait(one.taskNo, owner, 30_000, never))
  const all = come('shop', 1_100)
  t.same(new Set(await Promise.all(all.slice(1_000))), new Set(['busy']))
  const others = [...come('warehouse', 500), ...come('billing', 250)]
  t.same(new Set(await Promise.all([...come('warehouse', 1), ...come('billing', 1)])), new Set(['busy']))
  const another = polls.wait(one.taskNo, 'returns', 30_000, never)
  polls.stop()
  t.same(new Set(await Promise.all([...all.slice(0, 1_000), ...others, another])), new Set([undefined]))
})
