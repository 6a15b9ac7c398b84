import { isDeepStrictEqual } from 'node:util'
import t from 'tap'
import { behaviour, fateOf } from '../../chaos/behaviour.ts'
import { planLoad } from '../../chaos/load-plan.ts'
import { differenceOf } from '../../chaos/clock.ts'
import { envelope } from '../../chaos/load.ts'
import { actionsOf, faults, planNemesis, type Queue } from '../../chaos/nemesis-plan.ts'
import { faultProfile, profiles, readOptions } from '../../chaos/options.ts'
import { only } from '../support/only.ts'

const quick = { seconds: 90, rate: 12, stopMs: 5_000 }
const plan = (seed: number, queue: Queue = 'redis') =>
  planNemesis(seed, { seconds: 90, queue, stopMs: 5_000 })

t.test('a seed plays the same load, the same faults and the same downstream again', async t => {
  // A comparison of a whole load by tap takes seconds.
  t.ok(isDeepStrictEqual(planLoad(7, quick), planLoad(7, quick)))
  t.same(plan(7), plan(7))
  const about = { taskNo: 'chaos-7-1', downstream: 'receipted', nth: 0, owed: true, mended: false }
  t.same(behaviour(7, about, 'well'), behaviour(7, about, 'well'))
  t.notOk(isDeepStrictEqual(planLoad(7, quick), planLoad(8, quick)))
  t.notSame(plan(7), plan(8))
})

t.test(
  'a quick run posts what it takes to say something, at about its rate, in bursts and lulls',
  async t => {
    for (const seed of [1, 2, 3]) {
      const tasks = planLoad(seed, quick)
      t.ok(tasks.length > 900 && tasks.length < 1_300, `${tasks.length}`)
      t.equal(new Set(tasks.map(({ taskNo }) => taskNo)).size, tasks.length, 'each taskNo is one task')
      const gaps = tasks.slice(1).map(({ atMs }, at) => atMs - (tasks[at]?.atMs ?? 0))
      t.ok(gaps.every(gap => gap >= 0))
      t.ok(Math.max(...gaps) > 4 * (1_000 / quick.rate))
    }
  }
)

t.test('a load holds everything that the judge asks about', async t => {
  const tasks = planLoad(1, quick)
  for (const member of [
    'startInMs',
    'delayMs',
    'needCallback',
    'retryTimes',
    'againAfterMs',
    'conflictAfterMs',
    'removeAfterMs',
    'redeliverAfterMs',
    'isWrong'
  ] as const)
    t.ok(
      tasks.some(task => task[member] !== undefined),
      member
    )
  t.ok(tasks.some(({ taskNo }) => fateOf(1, taskNo) === 'doomed'))
})

t.test('the posted text holds the body letter by letter', async t => {
  const [task] = planLoad(1, quick).filter(one => one.body.includes('1.0'))
  t.ok(task && envelope(task, 0).endsWith(`,"messageBody":${task.body}}`))
})

t.test('every action of a mode runs, whatever the seed; without Redis none of Redis', async t => {
  for (const seed of [1, 2, 3]) {
    t.equal(actionsOf(plan(seed)).length, 18)
    const without = actionsOf(plan(seed, 'postgres'))
    t.equal(without.length, 14)
    t.notOk(without.some(action => action.startsWith('redis')))
  }
})

t.test('the faults of a quick run are over when its load is', async t => {
  for (let seed = 0; seed < 50; seed++) {
    const { alone, processes, servers } = plan(seed)
    t.equal(alone.length, 1)
    const last = Math.max(...[...processes, ...servers].map(({ atMs, holdMs }) => atMs + holdMs))
    t.ok((alone[0]?.atMs ?? 0) >= last && (alone[0]?.atMs ?? 0) < 75_000)
  }
})

t.test('a failover comes once a run, after the other faults and before the rolling restart', async t => {
  for (const fault of ['failover', 'sentinel'] as const)
    for (let seed = 0; seed < 20; seed++) {
      const profile = { ...quick, ...faultProfile(fault) }
      // 300 s are long enough for several cycles.
      for (const seconds of [profile.seconds, 300]) {
        const faulty = planNemesis(seed, { ...profile, seconds, queue: 'redis' })
        const its = fault === 'failover' ? 'postgres.failover' : 'redis.failover'
        const [first, second] = faulty.alone
        t.match([first?.action, second?.action], [its, 'rolling'])
        t.equal(faulty.alone.filter(({ action }) => action === its).length, 1)
        t.ok((second?.atMs ?? 0) >= (first?.atMs ?? 0) + 5_000)
        const others = new Set(faulty.servers.map(({ action }) => action.split('.')[0]))
        t.same([...others], ['sink'], 'who is gone for good cannot be stopped and started')
      }
    }
})

t.test('with --fault thaw processes of each role stand still for 10 s', async t => {
  const profile = { ...quick, ...faultProfile('thaw') }
  const { processes } = planNemesis(7, { ...profile, queue: 'postgres' })
  const thawed = processes.filter(({ action }) => action.startsWith('thaw.'))
  t.same(thawed.map(({ action, holdMs }) => `${action} ${holdMs}`).toSorted(), [
    'thaw.api 10000',
    'thaw.dispatcher 10000',
    'thaw.worker 10000'
  ])
  const without = actionsOf(plan(7))
  t.notOk(
    without.some(action => /thaw|failover/.test(action)),
    'a run without --fault has none of them'
  )
})

t.test('a doomed task is never answered well; once mended it is', async t => {
  const doomed = planLoad(1, quick).find(({ taskNo, isWrong }) => !isWrong && fateOf(1, taskNo) === 'doomed')
  const about = { taskNo: doomed?.taskNo ?? '', downstream: 'plain', nth: 0, owed: false, mended: false }
  for (let nth = 0; nth < 20; nth++) {
    const { answer } = behaviour(1, { ...about, nth }, 'well')
    t.ok(answer.kind !== 'late' && !(answer.kind === 'status' && answer.status < 300))
  }
  t.match(behaviour(1, { ...about, mended: true }, 'well').answer, { kind: 'status' })
})

t.test('wrong options are told by name, and good ones change the profile', async t => {
  t.throws(() => readOptions(['--profile', 'slow'], {}), /--profile must be one of quick, long/)
  t.throws(() => readOptions(['--mode', 'mysql'], {}), /--mode must be/)
  t.throws(() => readOptions(['--seconds', 'long'], {}), /--seconds must be a whole number/)
  t.throws(() => readOptions(['--what'], {}), /--what/)
  t.throws(() => readOptions(['--profile', 'receivers', '--together'], {}), /receivers takes no --together/)
  t.throws(() => readOptions(['--mixed', 'x', '--mutant', 'host-clock'], {}), /--mixed takes no --mutant/)
  t.throws(() => readOptions(['--fault', 'rain'], {}), /--fault must be one of thaw, failover, sentinel/)
  t.throws(() => readOptions(['--fault', 'sentinel', '--mode', 'postgres'], {}), /needs --mode redis/)
  t.match(readOptions(['--fault', 'failover'], {}), {
    fault: 'failover',
    profile: { only: only(...faults.failover) }
  })
  t.equal(readOptions(['--help'], {}), 'help')
  t.match(readOptions(['--mutant', 'host-clock'], {}), { seed: 7 })
  t.match(readOptions(['--seed', '5', '--seconds', '30', '--rate', '3'], { MUTANT: 'host-clock' }), {
    seed: 5,
    queue: 'redis',
    mutant: 'host-clock',
    profile: { ...profiles['quick'], seconds: 30, rate: 3 }
  })
})

t.test(
  'the difference of two clocks is what the quickest answer says, and none where there need be none',
  async t => {
    const slow = { aheadMs: -30, withinMs: 30 }
    t.equal(
      differenceOf([slow, slow, { aheadMs: 0.4, withinMs: 1 }, slow]),
      0,
      'the others were long on their way back'
    )
    t.equal(differenceOf([slow, slow]), -30)
    t.equal(differenceOf([{ aheadMs: -29, withinMs: 30 }]), 0)
    t.equal(differenceOf([slow, { aheadMs: 3_600_000, withinMs: 1 }]), 3_600_000)
  }
)
