// docs/alerts.yml and /metrics, checked by promtool. The ratios are computed over two processes together.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import t from 'tap'
import { createMetrics } from '../../src/runtime/metrics.ts'
import { without } from '../support/program.ts'

const rules = path.resolve('docs/alerts.yml')
// Debian has it in the package prometheus.
const skip = without('promtool')

function promtool(args: string[], input = ''): { status: number | null; said: string } {
  const { status, stdout, stderr } = spawnSync('promtool', args, { input, encoding: 'utf8' })
  return { status, said: `${stdout}${stderr}` }
}

t.test('the rules are rules', { skip }, async t => {
  t.match(promtool(['check', 'rules', rules]), { status: 0, said: /SUCCESS: \d+ rules found/ })
})

t.test('the metrics keep the conventions of Prometheus', { skip }, async t => {
  const metrics = createMetrics({
    processMetrics: false,
    handlers: [{ messageCode: 'order.paid', downstreams: [{ name: 'warehouse' }] }],
    build: { version: '1', queue: 'postgres' }
  })
  metrics.countDeliveries([{ name: 'warehouse', failed: 1, blocked: 1, awaitingReceipt: 1 }])
  metrics.outbox({ waiting: 1, oldestMs: 1, rejected: 1 })
  metrics.prepared(1, 1)
  metrics.attempted('warehouse', 'delivered', 3)
  metrics.alarmSent('ops', 'failed')
  t.same(promtool(['check', 'metrics'], await metrics.render()), { status: 0, said: '' })
})

// A counter of two processes, one value a minute.
const series = (name: string, labels: string, ...values: [string, string]) =>
  values
    .map(
      (value, at) => `      - series: '${name}{instance="${'ab'[at]}",${labels}}'\n        values: '${value}'`
    )
    .join('\n')

const failed = (downstream: string): string =>
  JSON.stringify({
    exp_labels: { severity: 'warning', downstream },
    exp_annotations: {
      summary: `Deliveries to ${downstream} FAILED`,
      description: 'They wait for an operator. ackbox tasks list --status FAILED.'
    }
  })

t.test(
  'the rules say what they should: ratios of all processes together, and whom to call',
  { skip },
  async t => {
    const folder = mkdtempSync(path.join(tmpdir(), 'ackbox-alerts-'))
    t.teardown(() => rmSync(folder, { recursive: true }))
    const test = path.join(folder, 'test.yml')
    const of = 'message_code="order.paid",downstream="warehouse"'
    writeFileSync(
      test,
      `rule_files: [${rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
${series('ackbox_first_attempts_total', `${of},outcome="delivered"`, '0+300x20', '0+60x20')}
${series('ackbox_first_attempts_total', `${of},outcome="failed"`, '0x20', '0+120x20')}
${series('ackbox_deliveries_ended_total', `${of},status="HANDLED",tries="first"`, '0+300x20', '0+60x20')}
${series('ackbox_deliveries_ended_total', `${of},status="HANDLED",tries="later"`, '0x20', '0+60x20')}
${series('ackbox_deliveries_ended_total', `${of},status="FAILED",tries="later"`, '0x20', '0+60x20')}
${series('ackbox_deliveries_ended_total', 'message_code="order.paid",downstream="points",status="FAILED",tries="later"', '0x20', '0x10 1x10')}
${series('ackbox_worker_yields_total', 'downstream="warehouse"', '0x20', '0 0 1x18')}
${series('ackbox_alarm_messages_total', 'channel="ops",outcome="failed"', '0+0.25x20', '0x10 0+0.25x9')}
${series('ackbox_alarm_messages_total', 'channel="pager",outcome="failed"', '0+0.2x20', '0x20')}
${series('ackbox_alarm_messages_total', 'channel="pager",outcome="accepted"', '0+9x20', '0+9x20')}
${series('ackbox_nodes', 'role="worker"', '2x20', '2x20')}
${series('ackbox_nodes', 'role="dispatcher"', '1x20', '1x10 0x9')}
    promql_expr_test:
      - expr: ackbox:direct_success:ratio_rate5m
        eval_time: 20m
        exp_samples: [{ labels: 'ackbox:direct_success:ratio_rate5m', value: 0.75 }]
      - expr: ackbox:failed_after_retries:ratio_rate5m
        eval_time: 20m
        exp_samples: [{ labels: 'ackbox:failed_after_retries:ratio_rate5m', value: 0.125 }]
    alert_rule_test:
      - eval_time: 4m
        alertname: AckboxWorkerYields
        exp_alerts:
          - exp_labels: { severity: warning, instance: b, downstream: warehouse }
            exp_annotations:
              summary: 'b cannot reach warehouse, which others reach'
              description: Its route, DNS or certificates differ from theirs. GET /nodes says why.
      - eval_time: 10m
        alertname: AckboxAlarmChannelFails
        exp_alerts: []
      - eval_time: 10m
        alertname: AckboxDeliveriesFailed
        exp_alerts: [${failed('warehouse')}]
      - eval_time: 11m
        alertname: AckboxDeliveriesFailed
        exp_alerts: [${failed('warehouse')}, ${failed('points')}]
      - eval_time: 20m
        alertname: AckboxAlarmChannelFails
        exp_alerts:
          - exp_labels: { severity: warning, channel: ops }
            exp_annotations:
              summary: 'The channel ops does not accept alarms'
              description: They wait, and are in GET /alarms. The log says why (alarm.send_failed). ackbox alarms test NAME.
      - eval_time: 11m
        alertname: AckboxRoleMissing
        exp_alerts: []
      - eval_time: 12m
        alertname: AckboxRoleMissing
        exp_alerts:
          - exp_labels: { severity: critical, role: dispatcher }
            exp_annotations:
              summary: 'No process with the role dispatcher lives'
              description: Tasks are accepted and wait. Without a dispatcher no retry, no outbox row and no alarm moves. GET /nodes.
      - eval_time: 20m
        alertname: AckboxDirectSuccessLow
        exp_alerts:
          - exp_labels: { severity: info }
            exp_annotations: { summary: 'Only 75% of the deliveries succeed with their first try' }
`
    )
    t.match(promtool(['test', 'rules', test]), { status: 0, said: /SUCCESS/ })
  }
)
