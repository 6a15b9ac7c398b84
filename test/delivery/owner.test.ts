// The deliveries of a dead process are taken back before their leases end. Deliveries that it did not own stay as they are.
import t, { type Test } from 'tap'
import type { TakenBy } from '../../src/delivery/rescue.ts'
import { timeLeft, type Owner } from '../../src/delivery/lease.ts'
import { only } from '../support/only.ts'
import { setup, type SetupOptions } from '../support/setup.ts'

interface Hand extends Owner {
  now: { number: number | null; isSilent: boolean; since: number }
}
function hand(number: number): Hand {
  const now: Hand['now'] = { number, isSilent: false, since: -Infinity }
  return { now, number: () => now.number, isSilent: () => now.isSilent, since: () => now.since }
}

/** A process whose number is 7, with leases of a minute and more. */
async function seven(t: Test, options: SetupOptions = {}) {
  const owner = hand(7)
  const story = await setup(t, {
    owner,
    downstream: { limit: { concurrency: 50, timeoutMs: 60_000 } },
    ...options
  })
  return { ...story, owner }
}
const dead = (number: number, isWorker = true) => ({ number, isWorker, node: `node ${number}` })

t.test('what a dead process accepted is sent at once by another attempt, though its lease runs', async t => {
  const { post, queue, dispatch, quiet, delivery, downstream, owner } = await seven(t)
  queue.mode = 'lose'
  const taskNo = await post()
  await quiet()
  t.match(await delivery(taskNo), { phase: 'IN_FLIGHT', attempt: 1 })
  queue.mode = 'deliver'
  await dispatch([dead(8)])
  t.equal(downstream.requests.length, 0, 'another one is dead: nothing of this')
  owner.now.number = 9
  await dispatch([dead(7)])
  await dispatch()
  t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 2 })
  t.equal(downstream.requests.length, 1)
})

t.test(
  'what a dead worker had taken from the queue and not read is sent at once, and is no lost attempt',
  async t => {
    let taken: TakenBy = async () => []
    const { sql, post, queue, dispatch, quiet, delivery } = await seven(t, {
      takenBy: (downstream, worker) => taken(downstream, worker)
    })
    queue.mode = 'lose'
    const [taskNo, queued] = [await post(), await post()]
    await quiet()
    queue.mode = 'deliver'
    taken = () => Promise.reject(new Error('the queue is away'))
    await dispatch([dead(8)])
    t.match(await delivery(taskNo), { phase: 'IN_FLIGHT', attempt: 1 }, 'its lease will end')
    const [{ id }] = await sql<[{ id: string }]>`select id from task where task_no = ${taskNo}`
    taken = async (downstream, worker) =>
      downstream === 'warehouse' && worker === 'node 8'
        ? // Some jobs were made by hand.
          [
            ['nonsense', 1],
            [id, 2 ** 40],
            [id, 1]
          ]
        : []
    await dispatch([dead(9)])
    t.match(await delivery(taskNo), { phase: 'IN_FLIGHT', attempt: 1 }, 'another one had not taken it')
    await dispatch([dead(8, false)])
    await sql`insert into owner (number, node, is_worker) overriding system value values (70, 'node 8', true)`
    await sql`update delivery set owner = 70 where task_id = ${id}`
    await dispatch([dead(8)])
    t.match(await delivery(taskNo), { phase: 'IN_FLIGHT', attempt: 1 }, 'it lives, and has read it since')
    await sql`update delivery set owner = 7 where task_id = ${id}`
    await dispatch([dead(8)])
    await dispatch()
    t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 2 })
    t.match(await delivery(queued), { phase: 'IN_FLIGHT', attempt: 1 }, 'what waits in the queue stays there')
    t.equal((await sql`select from delivery where lost > 0`).length, 0)
  }
)

t.test('and so is what it claimed as a dispatcher, and what it let go as the next of its key', async t => {
  const { post, queue, dispatch, quiet, later, receive, delivery, owner } = await seven(t, {
    downstream: { needCallback: true, limit: { concurrency: 50, timeoutMs: 60_000 } }
  })
  const [first, second] = [await post({ orderingKey: 'k' }), await post({ orderingKey: 'k' })]
  const due = await post({ delayMs: 60_000 })
  await quiet()
  queue.mode = 'lose'
  await receive({ taskNo: first })
  await quiet()
  t.match(await delivery(second), { phase: 'IN_FLIGHT', attempt: 1 })
  await later('61 s')
  await dispatch()
  t.match(await delivery(due), { phase: 'IN_FLIGHT', attempt: 1 })
  queue.mode = 'deliver'
  owner.now.number = 9
  await dispatch([dead(7)])
  await dispatch()
  t.match(await delivery(second), { phase: 'AWAITING_RECEIPT', attempt: 2 })
  t.match(await delivery(due), { phase: 'AWAITING_RECEIPT', attempt: 2 })
})

t.test('what a worker has taken from the queue of a dead process is its own, and goes on', async t => {
  const { post, queue, dispatch, quiet, delivery, downstream, owner, sql, record } = await seven(t, {
    hasWorker: false
  })
  queue.mode = 'hold'
  const taskNo = await post()
  await quiet()
  // The worker is another process.
  owner.now.number = 8
  downstream.holds = true
  const taken = queue.run()
  await downstream.received(1)
  t.match(await sql`select owner from delivery`, only({ owner: 8 }))
  // The move of a dispatcher that read the delivery before the worker took it over.
  const [row] = await sql`select task_id from delivery`
  const move = {
    taskId: String(row?.['task_id']),
    downstream: 'warehouse',
    attempt: 1,
    name: 'lose'
  } as const
  t.equal(await record({ move: { ...move, owner: 7 } }), 'stale')
  await dispatch([dead(7)])
  t.match(await delivery(taskNo), { phase: 'IN_FLIGHT', attempt: 1 })
  downstream.answer()
  await taken
  await quiet()
  t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 1 })
})

t.test('a death counts against what its worker held, and against nothing that was never sent', async t => {
  for (const isWorker of [true, false]) {
    const { post, queue, dispatch, quiet, delivery, sql } = await seven(t)
    queue.mode = 'lose'
    const taskNo = await post({ retryTimes: 1 })
    await quiet()
    await dispatch([dead(7, isWorker)])
    t.match(await sql`select lost from delivery`, only({ lost: isWorker ? 1 : 0 }))
    t.match(await delivery(taskNo), { status: 'SENDING' })
  }
})

t.test('without an answered beat nothing is sent: it is let go, uncounted, for whoever can', async t => {
  const { post, quiet, dispatch, delivery, downstream, owner, sql } = await seven(t)
  owner.now.isSilent = true
  const taskNo = await post({ retryTimes: 1 })
  await quiet()
  t.match(await delivery(taskNo), { phase: 'WAITING', attempt: 1 })
  t.equal(downstream.requests.length, 0)
  t.match(
    await sql`select owner, lost, tries_left from delivery`,
    only({ owner: null, lost: 0, tries_left: 1 })
  )
  owner.now.isSilent = false
  await dispatch()
  t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 2 })
})

t.test(
  'a process that was frozen and declared dead overwrites nothing, and sends nothing that it held',
  async t => {
    const { post, queue, quiet, dispatch, delivery, downstream, owner } = await seven(t, {
      downstream: { limit: { concurrency: 1, timeoutMs: 60_000 } }
    })
    downstream.holds = true
    const [sent, held] = [await post(), await post()]
    await downstream.received(1)
    // This process is frozen now. Another process takes both back and claims them again.
    queue.mode = 'hold'
    owner.now.number = 9
    await dispatch([dead(7)])
    t.match(await delivery(sent), { phase: 'IN_FLIGHT', attempt: 2 })
    t.match(await delivery(held), { phase: 'IN_FLIGHT', attempt: 2 })
    owner.now.since = performance.now()
    downstream.holds = false
    downstream.answer()
    await quiet()
    t.equal(downstream.requests.length, 1, 'it did not send the other one')
    t.match(await delivery(sent), {
      phase: 'IN_FLIGHT',
      attempt: 2,
      attempts: only({ outcome: 'delivered' })
    })
    t.match(await delivery(held), { phase: 'IN_FLIGHT', attempt: 2 })
    await queue.run()
    await quiet()
    t.match(await delivery(sent), { status: 'HANDLED', attempt: 2 })
    t.match(await delivery(held), { status: 'HANDLED', attempt: 2 })
  }
)

t.test('what was claimed before it was declared dead has no time left, and what came after has', async t => {
  const { post, queue, quiet, owner, around, handlers, stopping } = await seven(t)
  queue.mode = 'hold'
  await post()
  await quiet()
  const leased = queue.jobs.flat()[0]?.leased
  const [downstream] = handlers.get('order.paid')?.downstreams ?? []
  if (!leased || !downstream) throw new Error('nothing was claimed')
  const reach = { isSuspended: () => false }
  const headers = { forgetMs: 60_000 }
  const deps = { cluster: around, owner, stopping: stopping.signal, reach, headers }
  const left = (): number => timeLeft(deps, leased, downstream.limit.timeoutMs)
  t.ok(left() > 0)
  owner.now.since = performance.now()
  t.equal(left(), 0)
  owner.now.since = leased.leasedFrom
  t.ok(left() > 0)
})
