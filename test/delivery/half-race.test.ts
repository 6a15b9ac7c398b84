// Commit, rollback and check of one half message at the same moment, hundreds of times. One wins, and the others get the result.
import t, { type Test } from 'tap'
import { claimCheck, readHalf, recordCheck, type ClaimedCheck } from '../../src/db/prepared.ts'
import type { Sql } from '../../src/db/pool.ts'
import type { TaskView } from '../../src/db/views.ts'
import type { Ask } from '../../src/delivery/ask-producer.ts'
import { check, commit, rollBack, type NotEnded } from '../../src/delivery/half.ts'
import type { CheckAnswer } from '../../src/domain/types.ts'
import { halfStory, preparedTask, type Halves } from '../support/halves.ts'
import { lockWaits } from '../support/postgres.ts'
import type { Story } from '../support/setup.ts'
import { until } from '../support/until.ts'

t.setTimeout(600_000)

const times = 300
const atOnce = 50

type Said = TaskView | NotEnded | 'no_handler' | void
const heard = (done: Said): string =>
  done === undefined
    ? 'nothing'
    : typeof done === 'string'
      ? done
      : done.status === 'CANCELLED'
        ? 'CANCELLED'
        : 'ACTIVE'

/** Fifty races run at a time. The event loop, the pool and PostgreSQL decide the winner of each. */
async function race(
  story: Story,
  ready: (taskNo: string) => Promise<void>,
  run: (taskNo: string, n: number) => Promise<[state: string, ...heard: string[]]>
): Promise<Map<string, number>> {
  const counts = new Map<string, number>()
  for (let from = 0; from < times; from += atOnce) {
    const tasks = Array.from({ length: atOnce }, () => preparedTask())
    await story.accept.many(tasks)
    await Promise.all(tasks.map(task => ready(task.taskNo)))
    const all = await Promise.all(tasks.map((task, n) => run(task.taskNo, n)))
    for (const one of all) counts.set(one.join(' '), (counts.get(one.join(' ')) ?? 0) + 1)
    await story.quiet()
  }
  return counts
}

const stateOf = async ({ deps }: Halves, taskNo: string): Promise<string> => {
  const half = await readHalf(deps.sql, taskNo)
  return half === null || half === 'never' ? String(half) : half.state
}

/** Starts the work in an order that depends on `n`. Returns the results in the order of the arguments. */
const shuffled = async <T>(n: number, ...work: (() => Promise<T>)[]): Promise<T[]> => {
  const order = work.map((_, index) => (index + n) % work.length)
  const done = new Array<T>(work.length)
  await Promise.all(order.map(async index => (done[index] = await work[index]!())))
  return done
}

/** Exactly the ACTIVE tasks were delivered, each once, with one delivery row each. */
async function sound(t: Test, story: Story, committed: number): Promise<void> {
  const [rows] = await story.sql<[{ active: number; deliveries: number; astray: number; open: number }]>`
    select (select count(*)::int from task where state = 'ACTIVE') as active,
      (select count(*)::int from delivery) as deliveries,
      (select count(*)::int from delivery d join task t on t.id = d.task_id where t.state <> 'ACTIVE') as astray,
      (select count(*)::int from prepared where next_action_at is not null) as open`
  t.same({ ...rows }, { active: committed, deliveries: committed, astray: 0, open: 0 })
  t.equal(story.downstream.requests.length, committed, 'each was sent once')
}

t.test('commit against rollback', async t => {
  const { story, half } = await halfStory(t, 'http://127.0.0.1:9/')
  const counts = await race(
    story,
    async () => {},
    async (taskNo, n) => {
      const [yes, no] = await shuffled<Said>(
        n,
        () => commit(half.deps, taskNo, 'shop'),
        () => rollBack(half.deps, taskNo, 'shop')
      )
      return [await stateOf(half, taskNo), heard(yes), heard(no)]
    }
  )
  const yes = counts.get('ACTIVE ACTIVE committed') ?? 0
  const no = counts.get('CANCELLED rolled_back CANCELLED') ?? 0
  t.equal(yes + no, times, JSON.stringify([...counts]))
  t.ok(yes > 0 && no > 0, `both win: ${yes} and ${no}`)
  await sound(t, story, yes)
})

for (const answer of ['COMMITTED', 'ROLLED_BACK', 'UNKNOWN'] as const) {
  t.test(`commit and rollback against a check that says ${answer}`, async t => {
    const { story, half } = await halfStory(t, 'http://127.0.0.1:9/')
    const ask: Ask = async () => ({ answer: answer satisfies CheckAnswer, reason: null })
    const deps = { ...half.deps, ask }
    const claims = new Map<string, ClaimedCheck>()
    // The check is claimed before the start. The race is about the end of the half message.
    const ready = async (taskNo: string): Promise<void> => {
      const one = await readHalf(deps.sql, taskNo)
      const claim =
        one === null || one === 'never'
          ? null
          : await claimCheck(deps.sql, one.task.id, 60_000, { name: 'shop' })
      if (claim) claims.set(taskNo, claim)
    }
    const checkOf = async (taskNo: string): Promise<void> => {
      const claim = claims.get(taskNo)
      if (claim) await check(deps, claim)
    }
    const counts = await race(story, ready, async (taskNo, n) => {
      const [yes, no] = await shuffled<Said>(
        n,
        () => commit(deps, taskNo, 'shop'),
        () => rollBack(deps, taskNo, 'shop'),
        // Each tenth check comes after the end for certain.
        async () => (n % 10 === 0 ? undefined : checkOf(taskNo))
      )
      if (n % 10 === 0) await checkOf(taskNo)
      return [await stateOf(half, taskNo), heard(yes), heard(no)]
    })
    // Both commit and rollback report the state that the winner set.
    const yes = counts.get('ACTIVE ACTIVE committed') ?? 0
    const no = counts.get('CANCELLED rolled_back CANCELLED') ?? 0
    t.equal(yes + no, times, JSON.stringify([...counts]))
    await sound(t, story, yes)
    const [{ checked: byCheck }] = await story.sql<[{ checked: number }]>`
      select count(*)::int as checked from prepared where ended_by like 'check:%'`
    t.ok(answer === 'UNKNOWN' ? byCheck === 0 : byCheck > 0, `${byCheck} were ended by the check`)
    // A check is stale if the opposite end came first. A check with the answer UNKNOWN is stale if any end came first.
    const [{ noted }] = await story.sql<[{ noted: number }]>`
      select count(*)::int as noted from prepared where last_answer = 'UNKNOWN'`
    const late = { COMMITTED: no, ROLLED_BACK: yes, UNKNOWN: times - noted }[answer]
    t.ok(late > 0, `${late} checks lost`)
    t.equal(story.logged('check.stale').length, late, 'each of them is told')
  })
}

t.test('ten commits of one half message at once make its deliveries once', async t => {
  const { story, half } = await halfStory(t, 'http://127.0.0.1:9/')
  const tasks = Array.from({ length: 20 }, () => preparedTask())
  await story.accept.many(tasks)
  const all = await Promise.all(
    tasks.flatMap(({ taskNo }) => Array.from({ length: 10 }, () => commit(half.deps, taskNo, 'shop')))
  )
  t.ok(all.every(one => heard(one) === 'ACTIVE'))
  await story.quiet()
  await sound(t, story, 20)
})

/** Records a check with the answer UNKNOWN, which raises an alarm. `amid` runs before that is committed. */
async function raise(story: Story, taskNo: string, amid: (transaction: Sql) => Promise<void>): Promise<void> {
  const half = await readHalf(story.sql, taskNo)
  if (half === null || half === 'never') throw new Error(`${taskNo} is not prepared`)
  const taskId = half.task.id
  await claimCheck(story.sql, taskId, 60_000, { name: 'shop' })
  await story.sql.begin(async transaction => {
    const sql = transaction as unknown as Sql
    const one = { taskId, check: 1, answer: 'UNKNOWN', reason: null, waitMs: 60_000, isStuck: true } as const
    t.ok(await recordCheck(sql, one))
    await amid(sql)
  })
}

const stuck = async ({ sql }: Story) => [
  ...(await sql<{ resolved: boolean }[]>`
    select resolved_at is not null as resolved from alarm where kind = 'PREPARED_STUCK'`)
]

const committed = ({ deps }: Halves, taskNo: string) => commit(deps, taskNo, 'shop')
const rolledBack = ({ deps }: Halves, taskNo: string) => rollBack(deps, taskNo, 'shop')
const withSteps = async ({ deps }: Halves, taskNo: string) => {
  const [handler] = deps.handlers.values()
  const tasks = [{ taskNo: 'step', messageCode: 'order.paid', messageBody: '{}' }]
  const dtm = {
    checkAnswer: () => undefined,
    askEveryMs: () => 1_000,
    steps: () => ({ inSequence: true, tasks })
  }
  if (handler) handler.dtm = dtm
  return commit(deps, taskNo, 'shop')
}

for (const [name, end, said] of [
  ['a commit', committed, 'ACTIVE'],
  ['a commit with steps', withSteps, 'ACTIVE'],
  ['a rollback', rolledBack, 'CANCELLED']
] as const)
  t.test(`${name} resolves an alarm that is raised while it waits`, async t => {
    const { story, half } = await halfStory(t, 'http://127.0.0.1:9/')
    const taskNo = await half.prepare()
    let ending: Promise<Said> | undefined
    await raise(story, taskNo, async () => {
      ending = end(half, taskNo)
      await until('it waits for the check', async () => (await lockWaits(story.sql)) > 0)
    })
    t.equal(heard(await ending), said)
    t.same(await stuck(story), [{ resolved: true }])
    await story.quiet()
  })

t.test('no alarm is raised of a half message that is ended at that moment', async t => {
  const { story, half } = await halfStory(t, 'http://127.0.0.1:9/')
  const taskNo = await half.prepare()
  const found = await readHalf(story.sql, taskNo)
  if (found === null || found === 'never') throw new Error('it is not prepared')
  const taskId = found.task.id
  await claimCheck(story.sql, taskId, 60_000, { name: 'shop' })
  const one = { taskId, check: 1, answer: 'UNKNOWN', reason: null, waitMs: 60_000, isStuck: true } as const
  let recorded: Promise<boolean> | undefined
  await story.sql.begin(async transaction => {
    await rollBack({ ...half.deps, sql: transaction as unknown as Sql }, taskNo, 'shop')
    recorded = recordCheck(story.sql, one)
    await until('the check waits', async () => (await lockWaits(story.sql)) > 0)
  })
  t.equal(await recorded, false)
  t.same(await stuck(story), [])
})
