import t from 'tap'
import { createMetrics } from '../../src/runtime/metrics.ts'

t.test('what happened is counted under the words of the glossary', async t => {
  const metrics = createMetrics({ processMetrics: false })
  t.notMatch(await metrics.render(), /NaN/, 'nothing yet is no number, not a broken one')
  metrics.accepted('order.paid', 'created', 3)
  metrics.attempted('warehouse', 'failed', 250)
  metrics.received('HANDLED', true)
  metrics.moved('retry', false)
  metrics.moved('retry', true, 0)
  metrics.started('warehouse', 40)
  metrics.waiting('warehouse', 7)
  metrics.oldestDue('warehouse', 1_500)
  const text = await metrics.render()
  for (const line of [
    'ackbox_accepts_total{message_code="order.paid",kind="created"} 3',
    'ackbox_attempts_total{downstream="warehouse",outcome="failed"} 1',
    'ackbox_attempt_seconds_sum{downstream="warehouse"} 0.25',
    'ackbox_receipts_total{result="HANDLED",applied="true"} 1',
    'ackbox_moves_total{move="retry",written="false"} 1',
    'ackbox_queue_lag_seconds_count{downstream="warehouse"} 1',
    'ackbox_queue_waiting{downstream="warehouse"} 7',
    'ackbox_oldest_due_seconds{downstream="warehouse"} 1.5'
  ])
    t.ok(text.includes(line), line)
})

t.test('times are told in buckets, each with all below it', async t => {
  const metrics = createMetrics({ processMetrics: false })
  for (const ms of [5, 6, 450, 99_000]) metrics.attempted('warehouse', 'delivered', ms)
  metrics.attempted('points', 'delivered', 1)
  const text = await metrics.render()
  const expected = [
    '# TYPE ackbox_attempt_seconds histogram',
    'ackbox_attempt_seconds_bucket{le="0.005",downstream="warehouse"} 1',
    'ackbox_attempt_seconds_bucket{le="0.02",downstream="warehouse"} 2',
    'ackbox_attempt_seconds_bucket{le="0.1",downstream="warehouse"} 2',
    'ackbox_attempt_seconds_bucket{le="0.5",downstream="warehouse"} 3',
    'ackbox_attempt_seconds_bucket{le="60",downstream="warehouse"} 3',
    'ackbox_attempt_seconds_bucket{le="+Inf",downstream="warehouse"} 4',
    'ackbox_attempt_seconds_sum{downstream="warehouse"} 99.461',
    'ackbox_attempt_seconds_count{downstream="warehouse"} 4',
    'ackbox_attempt_seconds_count{downstream="points"} 1'
  ]
  for (const line of expected) t.ok(text.split('\n').includes(line), line)
})

t.test('the share of direct successes, and of those given up, is told', async t => {
  const metrics = createMetrics({ processMetrics: false })
  for (const attempt of [1, 1, 1, 4]) metrics.ended('warehouse', 'HANDLED', attempt)
  metrics.ended('warehouse', 'FAILED', 10, 'SEND_EXHAUSTED')
  metrics.ended('warehouse', 'FAILED', 1, 'REFUSED')
  metrics.ended('warehouse', 'DELETED', 1, 'DELETED')
  const text = await metrics.render()
  t.match(text, /^ackbox_direct_success_ratio 0\.75$/m)
  t.match(text, /^ackbox_failed_after_retries_ratio 0\.2$/m)
})
