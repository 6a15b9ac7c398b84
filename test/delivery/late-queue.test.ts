// A queue adds a job but answers too late. The deliveries are released, except those that a worker already has. None is sent twice.
import t, { type Test } from 'tap'
import type { Owner } from '../../src/delivery/lease.ts'
import { heldClaims } from '../../src/delivery/held-claims.ts'
import { setup } from '../support/setup.ts'

const seven: Owner = { number: () => 7, isSilent: () => false, since: () => -Infinity }

async function lateQueue(t: Test) {
  const story = await setup(t, { owner: seven, hasWorker: false })
  story.queue.mode = 'late'
  return story
}

t.test('a worker of another process has read it: it stays with that one', async t => {
  const { sql, post, queue, quiet, delivery } = await lateQueue(t)
  queue.late = () => sql`update delivery set owner = 8`
  const taskNo = await post()
  await quiet()
  t.match(await delivery(taskNo), { phase: 'IN_FLIGHT', attempt: 1 })
})

t.test('this process has lost its number meanwhile: it stays with the worker all the same', async t => {
  let number: number | null = 7
  const owner = { ...seven, number: () => number }
  const { sql, post, queue, quiet, delivery } = await setup(t, { owner, hasWorker: false })
  queue.mode = 'late'
  queue.late = async () => {
    await sql`update delivery set owner = 8`
    number = null
  }
  const taskNo = await post()
  await quiet()
  t.match(await delivery(taskNo), { phase: 'IN_FLIGHT', attempt: 1 })
})

t.test('a worker of this process sends it: it is not sent again', async t => {
  const { post, queue, quiet, dispatch, delivery, downstream } = await lateQueue(t)
  downstream.holds = true
  queue.late = async () => {
    void queue.run()
    await downstream.received(1)
  }
  const taskNo = await post()
  await downstream.received(1)
  await dispatch()
  t.match(await delivery(taskNo), { phase: 'IN_FLIGHT', attempt: 1 })
  downstream.answer()
  await quiet()
  queue.mode = 'deliver'
  await dispatch()
  t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 1 })
  t.equal(downstream.requests.length, 1)
})

t.test('a worker of this process reads it while it is released: it leaves it alone', async t => {
  const { sql, post, queue, quiet, dispatch, delivery, downstream } = await lateQueue(t)
  let taskNo = ''
  await sql.begin(async holding => {
    const ran = new Promise(resolve => {
      queue.late = async () => {
        // The release waits for this lock. A read does not.
        await holding`select from delivery for update`
        setImmediate(() => resolve(queue.run()))
      }
    })
    taskNo = await post()
    await ran
  })
  await quiet()
  t.equal(downstream.requests.length, 0)
  t.match(await delivery(taskNo), { phase: 'WAITING', attempt: 1 })
  queue.mode = 'deliver'
  await dispatch()
  t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 2 })
  t.equal(downstream.requests.length, 1)
})

t.test('nobody has it: it is due again at once, and its job comes too late', async t => {
  const { post, queue, quiet, dispatch, delivery, downstream } = await lateQueue(t)
  const taskNo = await post()
  await quiet()
  t.match(await delivery(taskNo), { phase: 'WAITING', attempt: 1 })
  await queue.run()
  t.equal(downstream.requests.length, 0)
  queue.mode = 'deliver'
  await dispatch()
  t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 2 })
  t.equal(downstream.requests.length, 1)
})

t.test('a job that comes twice is begun once, until it has ended', async t => {
  const { post, queue, quiet, downstream, delivery } = await lateQueue(t)
  queue.mode = 'hold'
  downstream.holds = true
  const taskNo = await post()
  await quiet()
  queue.jobs.push([...(queue.jobs[0] ?? [])])
  await queue.run()
  await downstream.received(1)
  downstream.answer()
  await quiet()
  t.equal(downstream.requests.length, 1)
  t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 1 })
})

t.test('the end of one attempt says nothing of the next', async t => {
  const { begin, end, withdraw } = heldClaims(['plain'])
  const claim = (attempt: number) => ({ downstream: 'plain', taskId: 'a', attempt })
  const begun = (attempt: number) =>
    begin({ downstream: 'plain', deliveries: [claim(attempt)] }).deliveries.length
  const released: number[] = []
  const release = async (one: { attempt: number }) => void released.push(one.attempt)
  t.equal(begun(1), 1)
  await withdraw([claim(2)], release)
  t.same(released, [2], 'nobody has begun with the second one')
  t.equal(begun(2), 1)
  end('plain', 'a', 1)
  await withdraw([claim(2)], release)
  t.same(released, [2], 'the second one has begun')
  end('plain', 'a', 2)
  await withdraw([claim(2)], release)
  t.same(released, [2, 2])
})
