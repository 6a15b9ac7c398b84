import t from 'tap'
import { only } from '../support/only.ts'
import { taskRequest } from '../support/task-request.ts'
import { setup } from '../support/setup.ts'

t.test('a request that throws, hangs or fails is counted and leaves the others alone', async t => {
  const { accept, quiet, read, downstream } = await setup(t, {
    downstream: {
      request({ body, raw }) {
        if ((body as { bad?: boolean }).bad) throw new Error('no such\0field')
        return { url: 'http://warehouse.test/', body: raw }
      }
    }
  })
  const tasks = [taskRequest(), taskRequest({ messageBody: '{"bad":true}' }), taskRequest()]
  await accept.many(tasks)
  await quiet()
  const [one, bad, other] = await Promise.all(tasks.map(task => read(task.taskNo)))
  t.match([one, other], [{ status: 'HANDLED' }, { status: 'HANDLED' }])
  t.match(bad?.deliveries[0], {
    status: 'SENDING',
    phase: 'WAITING',
    triesLeft: 9,
    attempts: only({ attempt: 1, outcome: 'failed', reason: 'hook: no such\uFFFDfield' })
  })
  t.equal(downstream.requests.length, 2)
})

t.test('a hook that hangs fails its own attempt after 5 s, and holds up nobody', async t => {
  const { post, downstream, delivery, quiet, sql } = await setup(t, {
    downstreams: {
      points: { beforeSend: ({ body }) => ('hang' in (body as object) ? new Promise(() => {}) : undefined) },
      warehouse: {}
    }
  })
  const stuck = await post({ messageBody: '{"hang":1}' })
  const fine = await post({ messageBody: '{"go":1}' })
  await downstream.received(3)
  await quiet()
  t.match(await delivery(fine, 'points'), { status: 'HANDLED' })
  t.match(await delivery(stuck, 'warehouse'), { status: 'HANDLED' })
  t.match(await delivery(stuck, 'points'), {
    phase: 'WAITING',
    attempts: only({ outcome: 'failed', reason: 'hook: beforeSend took longer than 5000 ms' })
  })
  const [{ held }] = await sql<[{ held: number }]>`
    select count(*)::int as held from delivery where phase = 'IN_FLIGHT'`
  t.equal(held, 0)
})

t.test('a thenable that is no Promise and hangs, as a query may, has no more time than one', async t => {
  const ends: (() => void)[] = []
  // oxlint-disable-next-line unicorn/no-thenable -- as query builders are
  const hanging = { then: (resolve: () => void) => ends.push(resolve) } as unknown as Promise<never>
  const { post, delivery, quiet } = await setup(t, {
    downstreams: {
      points: { beforeSend: () => hanging },
      warehouse: { request: () => hanging }
    }
  })
  t.teardown(() => ends.forEach(end => end()))
  const taskNo = await post()
  await quiet()
  for (const [downstream, hook] of [
    ['points', 'beforeSend'],
    ['warehouse', 'request']
  ] as const)
    t.match(await delivery(taskNo, downstream), {
      phase: 'WAITING',
      attempts: only({ outcome: 'failed', reason: `hook: ${hook} took longer than 5000 ms` })
    })
})

t.test('beforeSend may skip it, and may put it off uncounted', async t => {
  const wish = { now: { postponeMs: 30_000 } as { skip: true } | { postponeMs: number } | undefined }
  const { post, quiet, delivery, dispatch, later, downstream } = await setup(t, {
    downstream: { beforeSend: () => wish.now }
  })
  const taskNo = await post({ retryTimes: 1 })
  await quiet()
  t.match(await delivery(taskNo), { phase: 'WAITING', attempt: 1, triesLeft: 1 })
  await dispatch()
  t.match(await delivery(taskNo), { phase: 'WAITING', attempt: 1 }, 'not yet')
  await later('31 s')
  wish.now = undefined
  await dispatch()
  t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 2 })
  wish.now = { skip: true }
  const skipped = await post()
  await quiet()
  t.match(await delivery(skipped), { status: 'DELETED', reason: 'SKIPPED', attempts: { length: 0 } })
  t.equal(downstream.requests.length, 1)
})

t.test('only skip: true skips: anything else of JavaScript is sent, postponed or an error', async t => {
  const answers: Record<string, unknown> = {
    sent: { skip: false },
    undecided: { skip: undefined },
    postponed: { skip: false, postponeMs: 30_000 },
    odd: { skip: 'yes' },
    empty: {},
    bare: true
  }
  const { post, quiet, delivery, downstream } = await setup(t, {
    downstream: { beforeSend: ({ task }) => answers[task.sceneType] as never }
  })
  const taskNos = await Promise.all(Object.keys(answers).map(sceneType => post({ sceneType })))
  await quiet()
  const ends = await Promise.all(taskNos.map(taskNo => delivery(taskNo)))
  t.match(ends, [
    { status: 'HANDLED' },
    { status: 'HANDLED' },
    { phase: 'WAITING', attempts: { length: 0 } },
    {
      phase: 'WAITING',
      attempts: only({ reason: 'hook: beforeSend returned a skip that is neither true nor false' })
    },
    { phase: 'WAITING', attempts: only({ reason: 'hook: beforeSend returned postponeMs: undefined' }) },
    { phase: 'WAITING', attempts: only({ reason: 'hook: beforeSend returned postponeMs: undefined' }) }
  ])
  t.equal(downstream.requests.length, 2)
})

t.test('a postponeMs that is no number fails that attempt instead of leaving it to its lease', async t => {
  const { post, quiet, delivery } = await setup(t, {
    downstream: { beforeSend: ({ task }) => ({ postponeMs: task.sceneType === 'nan' ? Number.NaN : 1e300 }) }
  })
  const nonsense = await post({ sceneType: 'nan' })
  const ages = await post()
  await quiet()
  t.match(await delivery(nonsense), { phase: 'WAITING', attempts: only({ reason: /postponeMs: NaN/ }) })
  const { phase, nextActionAt = '' } = await delivery(ages)
  t.equal(phase, 'WAITING')
  t.ok(Date.parse(nextActionAt) < Date.now() + 366 * 24 * 3_600_000, nextActionAt)
})

t.test('accepted decides what an answer means: 200 is not delivered when the handler says so', async t => {
  const { post, quiet, delivery } = await setup(t, {
    downstream: { accepted: (_, { task }) => (task.sceneType === 'never' ? 'refused' : false) }
  })
  const later = await post()
  const never = await post({ sceneType: 'never' })
  await quiet()
  t.match(await delivery(later), { phase: 'WAITING', attempts: only({ outcome: 'failed' }) })
  t.match(await delivery(never), { status: 'FAILED', reason: 'REFUSED' })
})

t.test('a hook that used up the lease does not send: it is looked at again right before', async t => {
  const { post, quiet, delivery, downstream } = await setup(t, {
    leaseMarginMs: 0,
    downstream: {
      limit: { concurrency: 5, timeoutMs: 2_500 },
      // The lease has 1.5 s left. The 900 ms after this hook are less than half of timeoutMs.
      beforeSend: () => new Promise(resolve => setTimeout(resolve, 600))
    }
  })
  const taskNo = await post()
  await quiet()
  t.match(await delivery(taskNo), { phase: 'WAITING', attempt: 1, triesLeft: 10, attempts: { length: 0 } })
  t.equal(downstream.requests.length, 0)
})
