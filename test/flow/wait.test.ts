import t from 'tap'
import { waiters } from '../../src/flow/wait.ts'
import { delivered } from '../support/scripted.ts'
import { asked } from '../support/asked.ts'
import { setup } from '../support/setup.ts'

const log = { debug() {}, info() {}, warn() {}, error() {} }
const never = new AbortController().signal

t.test(
  'who waits is answered when the task comes to rest, whichever way, and unknown ones at once',
  async t => {
    const { sql, post, downstream, quiet, remove } = await setup(t)
    const waiting = waiters({ sql, log })
    t.teardown(() => waiting.stop())
    downstream.holds = true
    const [handled, deleted] = [await post(), await post()]
    const seen = await downstream.received(2)
    const both = Promise.all([handled, deleted].map(taskNo => waiting.wait(taskNo, 30_000, never)))
    downstream.answer(
      delivered,
      seen.findIndex(one => one.taskNo === handled)
    )
    await remove(deleted)
    t.same(await both, [undefined, undefined])
    t.equal(await waiting.wait(handled, 30_000, never), undefined)
    t.equal(await waiting.wait('nobody', 30_000, never), undefined)
    downstream.answer()
    await quiet()
  }
)

t.test('the timeout, a caller who hangs up and a stop each end the wait', async t => {
  const { sql, post, queue } = await setup(t)
  const waiting = waiters({ sql, log })
  queue.mode = 'hold'
  const taskNo = await post()
  t.equal(await waiting.wait(taskNo, 50, never), undefined)
  const gone = new AbortController()
  const one = waiting.wait(taskNo, 30_000, gone.signal)
  gone.abort()
  t.equal(await one, undefined)
  // Also one that was still asking when the stop came.
  const two = waiting.wait(taskNo, 30_000, never)
  waiting.stop()
  t.equal(await two, undefined)
  t.equal(await waiting.wait(taskNo, 30_000, never), undefined)
})

t.test('a thousand may wait, also when all of them come at once', async t => {
  const { sql, accept, queue } = await setup(t)
  queue.mode = 'hold'
  const waiting = waiters({ sql, log })
  const one = asked()
  await accept(one)
  const all = Array.from({ length: 1_100 }, () => waiting.wait(one.taskNo, 30_000, never))
  const busy = await Promise.all(all.slice(1_000))
  t.ok(busy.every(answer => answer === 'busy'))
  waiting.stop()
  t.same(new Set(await Promise.all(all.slice(0, 1_000))), new Set([undefined]))
})
