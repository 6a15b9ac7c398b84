// npm run bench -- pages: millions of tasks are in the tables and new ones come in. How fast are the calls of each page of the
// dashboard?
import { createHash } from 'node:crypto'
import { request } from 'undici'
import { fillPast } from './fill.ts'
import { onGround, redisOf, type Ground } from './ground.ts'
import { quantile, send, sorted } from './measure.ts'
import { asked, choice, flag, text, whole } from './options.ts'
import { report, round } from './report.ts'
import { emptyAckbox, runAckbox } from './variants.ts'

const help = `npm run bench -- pages [options]

Fills the tables with tasks of the last ten days, of which one in 200 FAILED, and sends the requests of every page of the
dashboard, one after the other, while new tasks come in at a steady rate. Progress goes to stderr; stdout gets one line of
JSON for each request. 10,000,000 tasks need about 12 GB in the folder for temporary files.

  --tasks N      tasks in the tables                            (10000000)
  --rate N       tasks a second meanwhile                       (1000)
  --seconds N    how long it sends requests                     (120)
  --mode MODE    redis or postgres: where BullMQ stores jobs    (redis, or postgres without a redis-server)
  --quick        a tiny run that shows that it works
  --help

Goals: 100 ms or less at the median of each call, 300 ms or less at its p99.`

const medianGoal = 100
const p99Goal = 300
const run = 'past'

interface Call {
  page: string
  /** `30d` stands for the time 30 days ago. */
  path: string
  /** The body of a POST. Without it the call is a GET. */
  body?: string
}

/** The requests of src/ui/pages. */
function calls(count: number): Call[] {
  const failed = `${run}-${Math.max(0, Math.floor(count / 200) - 1) * 200}`
  /** The fingerprint of `cause 0` in fillPast. */
  const fingerprint = createHash('md5').update('0').digest('hex').slice(0, 16)
  const list = (page: string, ...paths: string[]): Call[] => paths.map(path => ({ page, path }))
  return [
    ...list(
      'overview',
      `/stats?from=1h`,
      `/stats?from=30d`,
      '/downstreams',
      '/stats?by=downstream&step=300',
      `/failures?from=30d&limit=5`,
      `/alarms?open=true&notKind=FAILED&from=30d&limit=50`,
      '/keys?held=true&limit=200'
    ),
    ...list('downstreams', '/stats?by=downstream&step=300', '/failures?limit=200'),
    ...list(
      'tasks',
      '/tasks?limit=50',
      `/tasks?status=FAILED&from=30d&limit=50`,
      `/tasks?status=SENDING&from=30d&limit=50`,
      `/tasks?status=PREPARED&from=30d&limit=50`,
      `/tasks?status=FAILED&downstream=bench-sink&reason=SEND_EXHAUSTED&from=30d&limit=50`,
      `/tasks?messageCode=nobody.knows&from=30d&limit=50`,
      `/tasks?sceneType=unknown&from=30d&limit=50`,
      `/tasks?lastReason=http_503&from=30d&limit=50`,
      `/tasks?bizType=order&bizKey=A-1001&limit=50`,
      `/tasks?taskNoPrefix=${failed}&from=30d&limit=50`
    ),
    ...list('task', `/tasks/${failed}`, `/alarms?taskNo=${failed}&limit=100`, `/audit?target=${failed}`),
    ...list(
      'failures',
      `/failures?from=1d&limit=100`,
      `/failures?from=30d&limit=100`,
      '/operations?limit=200',
      `/deliveries?status=FAILED&downstream=bench-sink&fingerprint=${fingerprint}&from=30d&limit=50`
    ),
    {
      page: 'failures',
      path: '/tasks/redeliver',
      body: '{"filter":{"downstream":"bench-sink"},"dryRun":true}'
    },
    ...list(
      'held',
      '/keys?held=true',
      `/tasks?status=PREPARED&checked=true&from=3650d&limit=50`,
      `/deliveries?phase=BLOCKED&from=3650d&limit=50`,
      '/outbox/rejected'
    ),
    ...list('alarms', `/alarms?open=true&from=30d&limit=200`, `/alarms?from=30d&limit=200`),
    ...list('nodes', '/nodes'),
    ...list('keys', '/api-keys'),
    ...list('audit', '/audit?limit=100'),
    ...list('test', '/handlers')
  ]
}

export async function main(args: string[]): Promise<void> {
  const options = { tasks: text, rate: text, seconds: text, mode: text, quick: flag }
  const values = asked(args, options, help)
  const { quick } = values
  const count = whole('--tasks', values.tasks ?? (quick ? '5000' : '10000000'))
  const rate = whole('--rate', values.rate ?? (quick ? '100' : '1000'))
  const seconds = whole('--seconds', values.seconds ?? (quick ? '3' : '120'))
  await onGround(quick, async (ground, signal) => {
    const given = values.mode ?? (ground.redisUrl === undefined ? 'postgres' : 'redis')
    const redisUrl = redisOf(ground, choice('--mode', given, ['redis', 'postgres']))
    const url = await emptyAckbox(ground, 'bench_pages')
    await fillPast({ url, run, count, signal })
    const running = await runAckbox(ground, 'bench_pages', redisUrl)
    try {
      await measure(ground, running.url, { count, rate, seconds })
    } finally {
      await running.stop()
    }
  })
}

interface Amounts {
  count: number
  rate: number
  seconds: number
}

async function measure(ground: Ground, url: string, { count, rate, seconds }: Amounts): Promise<void> {
  const all = calls(count)
  const load = { target: url, inFlight: 256, settleMs: 500 }
  await send(ground, { ...load, tasks: rate, rate })
  const times = new Map(all.map((call): [Call, number[]] => [call, []]))
  let isOver = false
  const posting = send(ground, { ...load, tasks: rate * seconds, rate }).finally(() => {
    isOver = true
  })
  posting.catch(() => {}) // awaited below
  // Each call at least once, even if all of them are slow.
  for (let turn = 0; turn === 0 || !isOver; turn++)
    for (const call of all) {
      if (turn > 0 && isOver) break
      times.get(call)?.push(await msOf(url, call))
    }
  const { lost, refused } = await posting
  for (const [{ page, path, body }, taken] of times) {
    const ms = sorted(taken)
    const [p50, p99] = [quantile(ms, 0.5), quantile(ms, 0.99)]
    report({
      bench: 'pages',
      page,
      call: `${body === undefined ? 'GET' : 'POST'} ${path}`,
      p50Ms: round(p50, 1),
      p99Ms: round(p99, 1),
      reached: { p50: p50 <= medianGoal, p99: p99 <= p99Goal },
      times: ms.length,
      tasks: count,
      rate,
      lost,
      refused
    })
  }
}

async function msOf(url: string, { path, body }: Call): Promise<number> {
  const began = performance.now()
  const timed = path.replace(/(?<=from=)(\d+)([hd])/, (_, n: string, unit: string) =>
    new Date(Date.now() - Number(n) * (unit === 'h' ? 3_600_000 : 86_400_000)).toISOString()
  )
  const headers = { 'content-type': 'application/json' }
  const answer = await request(`${url}${timed}`, body === undefined ? {} : { method: 'POST', body, headers })
  const content = await answer.body.text()
  if (answer.statusCode !== 200) throw new Error(`${path}: ${answer.statusCode} ${content.slice(0, 200)}`)
  return performance.now() - began
}
