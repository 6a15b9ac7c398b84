// docs/grafana.json: a board that Grafana can import, whose queries a real Prometheus answers.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { z } from 'zod'
import { freePort } from '../../src/embedded/port.ts'
import { createMetrics } from '../../src/runtime/metrics.ts'
import { without } from '../support/program.ts'
import { call, folder, settled, start } from '../support/service.ts'
import { stage } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(600_000)

const skip = without('prometheus')

// https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
const datasource = z.strictObject({ type: z.literal('prometheus'), uid: z.literal('${datasource}') })
const gridPos = z.strictObject({
  h: z.int().min(1),
  w: z.int().min(1).max(24),
  x: z.int().min(0).max(23),
  y: z.int().min(0)
})
const target = z.strictObject({
  datasource,
  editorMode: z.literal('code'),
  expr: z.string().min(1),
  legendFormat: z.string(),
  range: z.boolean(),
  instant: z.boolean().optional(),
  refId: z.string().regex(/^[A-Z]$/)
})
const step = z.strictObject({ color: z.string(), value: z.number().nullable() })
const fieldConfig = z.strictObject({
  defaults: z.strictObject({
    unit: z.enum(['percentunit', 'reqps', 'short', 's', 'bytes']),
    min: z.number().optional(),
    max: z.number().optional(),
    custom: z.looseObject({ drawStyle: z.literal('line') }).optional(),
    thresholds: z.strictObject({ mode: z.literal('absolute'), steps: z.array(step).min(1) }).optional()
  }),
  overrides: z.array(z.never())
})
const row = z.strictObject({
  id: z.int(),
  type: z.literal('row'),
  title: z.string().min(1),
  collapsed: z.boolean(),
  gridPos,
  panels: z.array(z.never())
})
const panel = z.strictObject({
  id: z.int(),
  type: z.enum(['stat', 'timeseries']),
  title: z.string().min(1),
  description: z.string(),
  datasource,
  targets: z.array(target).min(1),
  fieldConfig,
  options: z.looseObject({}),
  gridPos
})
const variable = z.looseObject({
  name: z.string().regex(/^\w+$/),
  type: z.enum(['datasource', 'query']),
  query: z.union([z.string(), z.looseObject({ query: z.string() })])
})
const boardOf = z.strictObject({
  title: z.string(),
  uid: z.string().regex(/^[\w-]{1,40}$/),
  description: z.string(),
  tags: z.array(z.string()),
  editable: z.boolean(),
  graphTooltip: z.int().min(0).max(2),
  schemaVersion: z.int().min(36),
  version: z.int(),
  refresh: z.string(),
  timezone: z.string(),
  time: z.strictObject({ from: z.string(), to: z.string() }),
  annotations: z.strictObject({ list: z.array(z.never()) }),
  links: z.array(z.never()),
  templating: z.strictObject({ list: z.array(variable) }),
  panels: z.array(z.discriminatedUnion('type', [row, panel]))
})

const text = readFileSync('docs/grafana.json', 'utf8')
const board = boardOf.parse(JSON.parse(text))
const panels = board.panels.filter(one => one.type !== 'row')
const queries = panels.flatMap(one => one.targets.map(({ expr }) => ({ title: one.title, expr })))

t.test('the board keeps to the model of Grafana', async t => {
  const ids = board.panels.map(({ id }) => id)
  t.equal(new Set(ids).size, ids.length, 'each panel has an id of its own')
  const taken = new Set<string>()
  for (const { title, gridPos: at } of board.panels) {
    t.ok(at.x + at.w <= 24, `${title} is inside of the board`)
    for (let x = at.x; x < at.x + at.w; x++)
      for (let y = at.y; y < at.y + at.h; y++) {
        if (taken.has(`${x} ${y}`)) t.fail(`${title} covers another panel`)
        taken.add(`${x} ${y}`)
      }
  }
  const known = [...board.templating.list.map(({ name }) => name), '__rate_interval', '__all']
  for (const [, name = ''] of text.matchAll(/\$\{?(\w+)/g)) t.ok(known.includes(name), `$${name}`)
})

/** The query as Grafana sends it, with every variable set to All. */
const filled = (expr: string): string =>
  expr.replaceAll('$__rate_interval', '1m').replaceAll(/\$(?:job|downstream|message_code)/g, '.*')

t.test('every metric that the board names is one of /metrics', async t => {
  const there = new Set((await createMetrics().render()).match(/(?<=^# TYPE )\S+/gm))
  for (const { title, expr } of queries)
    for (const name of expr.match(/\b(?:ackbox|nodejs|process)_\w+(?=\{)/g) ?? [])
      t.ok(there.has(name.replace(/_bucket$/, '')), `${title}: ${name}`)
})

t.test('a real Prometheus answers every panel', { skip }, async t => {
  const on = await stage(t)
  if (!on) return
  const service = await start(t, on.env)
  const tasks = Array.from({ length: 20 }, (_, n) => ({
    taskNo: `seen-${n}`,
    messageCode: 'test.receipt',
    messageBody: { n }
  }))
  t.equal((await call(`${service.url}/tasks/batch`, { tasks })).status, 200)
  for (const { taskNo } of tasks) await settled(service.url, taskNo)
  const [home, port] = [folder(t), await freePort()]
  const config = path.join(home, 'prometheus.yml')
  writeFileSync(
    config,
    `scrape_configs: [{ job_name: ackbox, scrape_interval: 2s, scrape_timeout: 2s, static_configs: [{ targets: ['${new URL(service.url).host}'] }] }]`
  )
  const args = [
    `--config.file=${config}`,
    `--storage.tsdb.path=${home}/data`,
    `--web.listen-address=127.0.0.1:${port}`
  ]
  const prometheus = spawn('prometheus', args, { stdio: 'ignore' })
  t.teardown(async () => {
    prometheus.kill('SIGKILL')
    if (prometheus.exitCode === null && prometheus.signalCode === null) await once(prometheus, 'close')
  })
  const ask = async (
    expr: string
  ): Promise<{ status: string; error?: string; data?: { result: unknown[] } }> => {
    const answer = await fetch(
      `http://127.0.0.1:${port}/api/v1/query?${new URLSearchParams({ query: expr }).toString()}`
    )
    return (await answer.json()) as { status: string; error?: string; data?: { result: unknown[] } }
  }
  await until('it has looked twice', async () => {
    const found = await ask('count_over_time(ackbox_accepts_total[5m]) > 1').catch(() => undefined)
    return (found?.data?.result.length ?? 0) > 0
  })
  for (const { title, expr } of queries) {
    const { status, error } = await ask(filled(expr))
    t.equal(status, 'success', `${title}: ${error ?? ''}`)
  }
  for (const title of [
    'Tasks accepted',
    'Tasks posted',
    'Attempts by outcome',
    'Attempt duration',
    'Receipts',
    'Outbox',
    'Oldest due',
    'Memory'
  ])
    // After a late scrape a gauge is missing until the next scrape.
    await until(`${title} shows something`, async () => {
      const shown = await Promise.all(
        queries.filter(query => query.title === title).map(query => ask(filled(query.expr)))
      )
      return shown.every(({ data }) => (data?.result.length ?? 0) > 0)
    })
})
