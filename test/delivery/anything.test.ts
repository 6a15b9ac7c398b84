// Random events in random order: a queue that loses, holds and refuses jobs, workers that die, receipts of every kind,
// requests of operators. Then all faults end. The test checks each transition that PostgreSQL recorded.
// Takes long: npm run test:long.
import fc from 'fast-check'
import t, { type Test } from 'tap'
import type { Sql } from '../../src/db/pool.ts'
import { moveNames, moves, type State } from '../../src/domain/transitions.ts'
import { statusNumber, receiptResults } from '../../src/domain/types.ts'
import { recordHistory } from '../support/replay.ts'
import { delivered, failed } from '../support/scripted.ts'
import { taskRequest } from '../support/task-request.ts'
import { setup } from '../support/setup.ts'

interface Seen {
  task_id: string
  was: string
  is: string
  old_attempt: number
  attempt: number
  old_tries: number
  tries: number
  round_from: number
  old_round_from: number
  clocks: boolean
}

async function watch(sql: Sql): Promise<void> {
  const place = (row: string) => `case when ${row}.phase is not null then ${row}.phase
    else case ${row}.status when 2 then 'FAILED' when 1 then 'HANDLED' else 'DELETED' end end`
  await sql.unsafe(`create table seen (
    nth bigserial, task_id uuid, was text, "is" text, old_attempt int, attempt int, old_tries int, tries int,
    old_round_from int, round_from int)`)
  await sql.unsafe(`create function watch() returns trigger language plpgsql as $$ begin
    insert into seen (task_id, was, "is", old_attempt, attempt, old_tries, tries, old_round_from, round_from)
    values (new.task_id, ${place('old')}, ${place('new')}, old.attempt, new.attempt, old.tries_left, new.tries_left,
      old.round_from, new.round_from);
    return new; end $$`)
  // story.later() moves clocks and leaves updated_at: it is not a transition.
  await sql.unsafe(`create trigger watch after update on delivery for each row
    when (old.updated_at is distinct from new.updated_at) execute function watch()`)
}

const chaos = fc.array(
  fc.oneof(
    fc.record({
      do: fc.constant('post' as const),
      count: fc.integer({ min: 1, max: 6 }),
      times: fc.integer({ min: 1, max: 4 })
    }),
    fc.record({
      do: fc.constant('queue' as const),
      mode: fc.constantFrom('deliver', 'deliver', 'hold', 'lose', 'refuse')
    }),
    fc.record({ do: fc.constant('run' as const) }),
    fc.record({ do: fc.constant('hold' as const), on: fc.boolean() }),
    fc.record({ do: fc.constant('answer' as const), nth: fc.nat(5), ok: fc.boolean() }),
    fc.record({ do: fc.constant('answers' as const), fail: fc.integer({ min: 0, max: 8 }) }),
    fc.record({ do: fc.constant('later' as const), by: fc.constantFrom('3 s', '11 s', '21 s', '61 s') }),
    fc.record({ do: fc.constant('dispatch' as const) }),
    fc.record({ do: fc.constant('dispatch' as const) }),
    fc.record({ do: fc.constant('workers' as const), count: fc.integer({ min: 0, max: 2 }) }),
    fc.record({
      do: fc.constant('receive' as const),
      result: fc.constantFrom(...receiptResults),
      which: fc.nat(200)
    }),
    fc.record({ do: fc.constant('remove' as const), which: fc.nat(200) }),
    fc.record({ do: fc.constant('redeliver' as const), which: fc.nat(200), force: fc.boolean() })
  ),
  { minLength: 30, maxLength: 60 }
)

for (const seed of [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) {
  t.test(`whatever happens, nothing is lost, doubled or undone (seed ${seed})`, async t => {
    const [steps = []] = fc.sample(chaos, { numRuns: 1, seed })
    await live(t, steps)
  })
}

async function live(t: Test, steps: typeof chaos extends fc.Arbitrary<infer T> ? T : never): Promise<void> {
  const story = await setup(t, {
    downstream: {
      needCallback: true,
      policy: { times: undefined, backoff: { kind: 'list', ms: [10_000] }, receiptTimeoutMs: 60_000 }
    }
  })
  const { sql, queue, downstream } = story
  await watch(sql)
  const isExplained = await recordHistory(sql)
  const posted: string[] = []
  const rounds = new Map<string, number>()
  const limits = new Map<string, number>()
  const pick = (which: number) => posted[which % Math.max(1, posted.length)]
  for (const step of steps) {
    if (step.do === 'post') {
      const batch = Array.from({ length: step.count }, () => taskRequest({ retryTimes: step.times }))
      await story.accept.many(batch)
      for (const { taskNo } of batch) {
        posted.push(taskNo)
        limits.set(taskNo, step.times)
      }
    }
    if (step.do === 'queue') queue.mode = step.mode
    if (step.do === 'run') await queue.run()
    if (step.do === 'answers') downstream.next(...Array.from({ length: step.fail }, () => failed), delivered)
    // A request without an answer outlives its lease when time passes. Its worker then no longer owns the delivery.
    if (step.do === 'hold') downstream.holds = step.on
    if (step.do === 'answer' && downstream.open > step.nth)
      downstream.answer(step.ok ? delivered : failed, step.nth)
    if (step.do === 'later') await story.later(step.by)
    if (step.do === 'dispatch') await story.dispatch()
    if (step.do === 'workers') await story.workers(step.count)
    const taskNo = 'which' in step ? pick(step.which) : undefined
    if (taskNo === undefined) continue
    if (step.do === 'receive') {
      const sent = downstream.requests.filter(one => one.taskNo === taskNo)
      const token = sent[step.which % Math.max(1, sent.length)]?.token
      // An impatient downstream sends the same receipt twice at once.
      await Promise.all([1, 2].map(() => story.receive({ taskNo, token, result: step.result })))
    }
    if (step.do === 'remove') await story.remove(taskNo)
    if (step.do === 'redeliver') {
      const done = await story.redeliver(taskNo, { force: step.force })
      if (typeof done === 'object') rounds.set(taskNo, (rounds.get(taskNo) ?? 1) + 1)
    }
    await orphans(t, sql)
  }
  // All faults end.
  downstream.holds = false
  while (downstream.open > 0) downstream.answer()
  queue.mode = 'deliver'
  queue.flush()
  await story.workers(1)
  for (let n = 0; n < 20; n++) {
    await story.later('61 s')
    await story.dispatch()
    for (const taskNo of new Set(downstream.requests.slice(-50).map(one => one.taskNo))) {
      await story.receive({ taskNo })
    }
  }
  await story.quiet()
  await judge(t, sql, story, posted, limits, rounds)
  await isExplained(t)
}

async function orphans(t: Test, sql: Sql): Promise<void> {
  const found = await sql`
    select from delivery where status = 0 and (next_action_at is null or next_action_at > now() + interval '62 s')`
  t.equal(found.length, 0, 'every SENDING delivery has a clock, and not a far one')
}

async function judge(
  t: Test,
  sql: Sql,
  { downstream, read, lines }: Awaited<ReturnType<typeof setup>>,
  posted: string[],
  limits: Map<string, number>,
  rounds: Map<string, number>
): Promise<void> {
  const stuck = await sql`select from delivery where status = 0`
  t.equal(stuck.length, 0, 'nothing is stuck')
  const seen = await sql<Seen[]>`select * from seen order by nth`
  for (const one of seen) {
    const fits = moveNames.some(name => {
      const { from, to } = moves[name] as { from: readonly State[]; to: State }
      return from.includes(one.was as State) && to === one.is
    })
    t.ok(fits, `${one.was} to ${one.is}`)
    if (one.attempt < one.old_attempt) t.fail('an attempt number fell')
    if (one.tries < 0) t.fail('more tries than it had')
    const anew = one.round_from !== one.old_round_from
    const over = ['HANDLED', 'FAILED', 'DELETED'].includes(one.was)
    if (over && !anew)
      t.match(one, { was: 'FAILED', is: 'HANDLED' }, 'an end is the end, but for a late receipt')
  }
  // A round has one end. After it, only a late receipt may still move the delivery.
  const failures = await sql<
    { task_id: string; attempt: number }[]
  >`select task_id, attempt from seen where "is" = 'FAILED'`
  const alarms = await sql<
    { task_id: string; attempt: number }[]
  >`select task_id, attempt from alarm where kind = 'FAILED'`
  const key = (one: { task_id: string; attempt: number }) => `${one.task_id} ${one.attempt}`
  t.same([...new Set(failures.map(key))].toSorted(), alarms.map(key).toSorted(), 'every FAILED has its alarm')
  const open = await sql<{ task_id: string }[]>`select task_id from alarm where resolved_at is null`
  const ended = await sql<
    { task_id: string }[]
  >`select task_id from delivery where status = ${statusNumber.FAILED}`
  t.same(
    open.map(one => one.task_id).toSorted(),
    ended.map(one => one.task_id).toSorted(),
    'and only those are open'
  )
  const pairs = downstream.requests.map(one => `${one.taskNo} ${one.attempt}`)
  t.equal(new Set(pairs).size, pairs.length, 'no attempt is sent twice')
  const ids = await sql<{ id: string; task_no: string }[]>`select id, task_no from task`
  const noOf = new Map(ids.map(row => [row.id, row.task_no]))
  for (const taskNo of posted) {
    // The insert may already be the first claim.
    const own = seen.filter(one => noOf.get(one.task_id) === taskNo)
    const first = own[0]?.old_attempt ?? 1
    const given = own
      .filter(one => one.round_from === one.old_round_from)
      .map(one => one.old_tries - one.tries)
    const counted = given.reduce((sum, tries) => sum + tries, first)
    const most = (limits.get(taskNo) ?? 0) * (rounds.get(taskNo) ?? 1)
    t.ok(counted <= most, `${counted} counted tries, ${most} are allowed`)
    const task = await read(taskNo)
    const [delivery] = task.deliveries
    const numbers = downstream.requests.filter(one => one.taskNo === taskNo).map(one => one.attempt)
    t.same(
      numbers,
      numbers.toSorted((a, b) => a - b),
      'attempts rise'
    )
    t.same(
      delivery?.attempts?.map(one => one.attempt),
      numbers,
      'every request is in the API'
    )
    if (delivery?.status === 'HANDLED') {
      t.ok(
        delivery.receipts?.some(one => one.applied && one.result === 'HANDLED'),
        'HANDLED has its receipt'
      )
    }
  }
  t.same(
    lines.filter(line => line.level === 'error'),
    []
  )
}
