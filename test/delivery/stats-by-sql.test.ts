// The numbers of the charts against SQL over the same rows, after random histories.
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { readStats, writeStatistics } from '../../src/db/statistics.ts'
import type { Policy } from '../../src/domain/retry-policy.ts'
import { receiptResults } from '../../src/domain/types.ts'
import { recordHistory } from '../support/replay.ts'
import { delivered, failed } from '../support/scripted.ts'
import { setup, type Story } from '../support/setup.ts'
import { taskRequest } from '../support/task-request.ts'

const history = fc.array(
  fc.oneof(
    {
      arbitrary: fc.record({ do: fc.constant('post' as const), times: fc.integer({ min: 1, max: 3 }) }),
      weight: 4
    },
    { arbitrary: fc.record({ do: fc.constant('post-later' as const) }), weight: 1 },
    {
      arbitrary: fc.record({ do: fc.constant('answers' as const), fail: fc.integer({ min: 1, max: 6 }) }),
      weight: 3
    },
    {
      arbitrary: fc.record({
        do: fc.constant('receive' as const),
        result: fc.constantFrom(...receiptResults),
        which: fc.nat(200)
      }),
      weight: 4
    },
    {
      arbitrary: fc.record({ do: fc.constant('later' as const), by: fc.constantFrom('11 s', '61 s') }),
      weight: 3
    },
    {
      arbitrary: fc.record({
        do: fc.constantFrom('remove' as const, 'settle' as const, 'redeliver' as const),
        which: fc.nat(200)
      }),
      weight: 2
    }
  ),
  { minLength: 40, maxLength: 60 }
)

/** What PostgreSQL recorded of each end of a delivery. */
interface Truth {
  downstream: string
  handled: number
  failed: number
  failedLater: number
  exhausted: number
  direct: number
  shortestMs: number | null
  longestMs: number | null
}

const watch = (story: Story): Promise<unknown> =>
  story.sql.unsafe(`
    create table ends (downstream text, status int, attempt int, reason text, handled_by text, ms float8);
    create function watch() returns trigger language plpgsql as $$ begin
      insert into ends
      select new.downstream, new.status, new.attempt, new.reason, new.handled_by,
        extract(epoch from new.handled_at - coalesce(t.deliver_start_time, t.created_at)) * 1000
      from task t where t.id = new.task_id;
      return new; end $$;
    create trigger watch after update on delivery for each row
      when (old.status is distinct from new.status and new.status in (1, 2)) execute function watch()`)

const truthOf = (story: Story): Promise<Truth[]> => story.sql<Truth[]>`
  select downstream,
    count(*) filter (where status = 1)::int as handled,
    count(*) filter (where status = 2)::int as failed,
    count(*) filter (where status = 2 and attempt > 1)::int as "failedLater",
    count(*) filter (where reason in ('SEND_EXHAUSTED', 'RECEIPT_TIMEOUT'))::int as exhausted,
    count(*) filter (where status = 1 and attempt = 1 and handled_by <> 'operator')::int as direct,
    min(ms) filter (where handled_by <> 'operator') as "shortestMs",
    max(ms) filter (where handled_by <> 'operator') as "longestMs"
  from ends group by downstream order by downstream`

for (const seed of [1, 2, 3, 4, 5, 6, 7, 8])
  t.test(`the charts say what SQL says of the same rows (history ${seed})`, async t => {
    const [steps = []] = fc.sample(history, { numRuns: 1, seed })
    const policy: Policy = {
      times: undefined,
      backoff: { kind: 'list', ms: [10_000] },
      receiptTimeoutMs: 60_000
    }
    const story = await setup(t, {
      downstreams: { points: { needCallback: true, policy }, warehouse: { policy } }
    })
    await watch(story)
    const isExplained = await recordHistory(story.sql)
    await play(story, steps)
    await compare(t, story)
    await isExplained(t)
  })

async function play(
  story: Story,
  steps: typeof history extends fc.Arbitrary<infer T> ? T : never
): Promise<void> {
  const { downstream } = story
  const posted: string[] = []
  for (const step of steps) {
    if (step.do === 'post' || step.do === 'post-later') {
      const more = step.do === 'post' ? { retryTimes: step.times } : { delayMs: 5_000 }
      posted.push(await story.post(taskRequest(more)))
    }
    if (step.do === 'answers')
      downstream.next(...Array.from({ length: step.fail }, (_, at) => (at % 3 === 2 ? delivered : failed)))
    if (step.do === 'later') {
      await story.later(step.by)
      await story.dispatch()
    }
    await story.quiet()
    const taskNo = 'which' in step ? posted[step.which % Math.max(1, posted.length)] : undefined
    if (taskNo === undefined) continue
    if (step.do === 'receive') {
      const sent = downstream.requests.filter(one => one.taskNo === taskNo)
      await story.receive({ taskNo, token: sent[0]?.token, result: step.result })
    }
    if (step.do === 'remove') await story.remove(taskNo)
    if (step.do === 'redeliver') await story.redeliver(taskNo)
    if (step.do === 'settle') await story.settle(taskNo)
    await story.quiet()
  }
}

async function compare(t: Test, story: Story): Promise<void> {
  const { sql, reads } = story
  await writeStatistics(sql, 'node-1', await story.counts())
  const [span] = await sql<[{ from: Date; to: Date }]>`
    select date_trunc('minute', now()) - interval '1 hour' as from, now() + interval '1 minute' as to`
  const asked = { ...span, messageCodes: null, stepS: 60 }
  const series = await readStats(reads, { ...asked, byDownstream: true })
  const [all] = await readStats(reads, { ...asked, byDownstream: false })

  const [accepted] = await sql<[{ n: number }]>`select count(*)::int as n from task`
  t.equal(all?.total.accepted, accepted.n, 'accepted')
  const attempts = await sql<
    {
      downstream: string
      attempts: number
      failedAttempts: number
      firstTries: number
      firstDelivered: number
    }[]
  >`
    select downstream, count(*)::int as attempts,
      count(*) filter (where outcome not in ('delivered', 'probed'))::int as "failedAttempts",
      count(*) filter (where attempt = 1)::int as "firstTries",
      count(*) filter (where attempt = 1 and outcome = 'delivered')::int as "firstDelivered"
    from attempt group by downstream order by downstream`
  t.ok(attempts.length > 0, 'something was tried')
  for (const { downstream, ...counts } of attempts)
    t.match(series.find(one => one.downstream === downstream)?.total, counts, `attempts at ${downstream}`)

  const truths = await truthOf(story)
  t.ok(truths.length > 0, 'something ended')
  for (const { downstream, shortestMs, longestMs, direct, ...counts } of truths) {
    const total = series.find(one => one.downstream === downstream)?.total
    t.match(total, counts, `ends of ${downstream}`)
    if (downstream === 'warehouse') t.equal(total?.direct, direct, 'handled at the first try')
    // Columns of PostgreSQL have microseconds, a Date has milliseconds.
    for (const share of ['p50Ms', 'p99Ms'] as const)
      if (shortestMs === null || longestMs === null) t.equal(total?.[share], undefined)
      else {
        const value = total?.[share] ?? NaN
        t.ok(
          value >= shortestMs - 1 && value <= longestMs + 1,
          `${share} ${value}: ${shortestMs} to ${longestMs}`
        )
      }
  }
  // A receipt or an answer counts in the minute in which PostgreSQL wrote it.
  const byMinute = await sql<{ at: Date; handled: number }[]>`
    select date_trunc('minute', handled_at) as at, count(*)::int as handled from delivery
    where handled_at is not null group by 1 order by 1`
  t.ok(
    byMinute.every(
      row =>
        (all?.points.find(point => Date.parse(point.at) === row.at.getTime())?.handled ?? 0) >= row.handled
    ),
    'handled, minute by minute'
  )
}
