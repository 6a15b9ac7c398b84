import t from 'tap'
import { createMetrics } from '../../src/runtime/metrics.ts'

t.test('what happened is counted under the words of the glossary', async t => {
  const metrics = createMetrics({ processMetrics: false })
  t.notMatch(await metrics.render(), /NaN/, 'nothing yet is no number, not a broken one')
  for (let n = 0; n < 3; n++) metrics.accepted('order.paid', 'created')
  metrics.attempted('warehouse', 'failed', 250)
  metrics.received('HANDLED', true)
  metrics.moved('retry', false)
  metrics.moved('retry', true, 0)
  metrics.queueLag('warehouse', 40)
  metrics.queued('warehouse', 7)
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

const handlers = [
  { messageCode: 'order.paid', downstreams: [{ name: 'warehouse' }] },
  { messageCode: 'order.half', downstreams: [{ name: 'warehouse' }], checkBack: () => ({ url: '' }) }
]

t.test('series exist from the start, at 0, for what handlers send and nothing else', async t => {
  const metrics = createMetrics({
    processMetrics: false,
    handlers,
    channels: ['ops'],
    build: { version: '1.2.3', queue: 'redis' }
  })
  const text = await metrics.render()
  for (const line of [
    'ackbox_first_attempts_total{message_code="order.paid",downstream="warehouse",outcome="delivered"} 0',
    'ackbox_deliveries_ended_total{message_code="order.paid",downstream="warehouse",status="FAILED",tries="later"} 0',
    'ackbox_delivery_failures_total{downstream="warehouse",reason="RECEIPT_TIMEOUT"} 0',
    'ackbox_attempts_total{downstream="warehouse",outcome="refused"} 0',
    'ackbox_attempts_total{downstream="warehouse",outcome="probed"} 0',
    'ackbox_accepts_total{message_code="order.paid",kind="created"} 0',
    'ackbox_receipts_total{result="RETRY",applied="false"} 0',
    'ackbox_moves_total{move="settle",written="true"} 0',
    'ackbox_worker_yields_total{downstream="warehouse"} 0',
    'ackbox_accepts_total{message_code="order.paid",kind="refused"} 0',
    'ackbox_alarm_messages_total{channel="ops",outcome="failed"} 0',
    'ackbox_checks_total{message_code="order.half",answer="UNKNOWN"} 0',
    'ackbox_prepared_ended_total{message_code="order.half",state="ROLLED_BACK",by="check"} 0'
  ])
    t.ok(text.split('\n').includes(line), line)
  t.notMatch(
    text,
    /^ackbox_(outbox_waiting|outbox_oldest|outbox_rejected|prepared_tasks|prepared_oldest)/m,
    'those of dispatchers'
  )
  metrics.outbox({ waiting: 0, oldestMs: 0, rejected: 2 })
  t.match(await metrics.render(), /^ackbox_outbox_waiting 0$/m)
  t.notMatch(
    text,
    /ackbox_(checks|prepared_ended)_total\{message_code="order\.paid"/,
    'it has no half messages'
  )
  t.match(text, /^ackbox_build_info\{version="1\.2\.3",node_version="[\d.]+",queue="redis"\} 1$/m)
  const count = () => metrics.render().then(all => all.split('\n').length)
  const before = await count()
  for (const messageCode of ['gone.one', 'gone.two', undefined])
    metrics.ended({ messageCode, downstream: 'warehouse', isFirstTry: true }, 'HANDLED')
  t.equal(await count(), before + 1, 'rows of handlers that are gone make one series together')
  metrics.countDeliveries([
    { name: 'warehouse', failed: 10_001, blocked: 2, awaitingReceipt: 3 },
    { name: 'gone', failed: 1, blocked: 0, awaitingReceipt: 0 }
  ])
  const standing = await metrics.render()
  t.match(standing, /^ackbox_deliveries_failed\{downstream="warehouse"\} 10001$/m)
  t.notMatch(standing, /downstream="gone"/)
})

t.test('what ended is counted by its tries, and FAILED by its reason', async t => {
  const metrics = createMetrics({ processMetrics: false, handlers })
  const one = (isFirstTry: boolean) => ({ messageCode: 'order.paid', downstream: 'warehouse', isFirstTry })
  for (const isFirst of [true, true, true, false]) metrics.ended(one(isFirst), 'HANDLED')
  metrics.ended(one(false), 'FAILED', 'SEND_EXHAUSTED')
  const text = await metrics.render()
  const labels = 'message_code="order.paid",downstream="warehouse"'
  for (const line of [
    `ackbox_deliveries_ended_total{${labels},status="HANDLED",tries="first"} 3`,
    `ackbox_deliveries_ended_total{${labels},status="HANDLED",tries="later"} 1`,
    `ackbox_deliveries_ended_total{${labels},status="FAILED",tries="later"} 1`,
    'ackbox_delivery_failures_total{downstream="warehouse",reason="SEND_EXHAUSTED"} 1'
  ])
    t.ok(text.includes(line), line)
})
