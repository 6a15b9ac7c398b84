// ackbox demo: posts sample tasks to a running Ackbox and shows their results.
import { randomInt } from 'node:crypto'
import { setMaxListeners } from 'node:events'
import { setTimeout as wait } from 'node:timers/promises'
import { readDemoKey } from '../demo/key.ts'
import { environment } from '../service/config.ts'
import { commandLine } from '../runtime/package.ts'
import { onStop } from '../runtime/stop.ts'
import { readArguments, readKey, readUrl, readWhole, UsageError } from './arguments.ts'
import { openClient, type ApiClient, type Reply } from './client.ts'
import { ms, progressLine, table } from './demo/show.ts'
import { count, percentile, surprises, type SeenTask } from './demo/tally.ts'
import { demoTask, type DemoTask } from './demo/tasks.ts'
import { messageOf } from '../runtime/errors.ts'

export const help = `${commandLine('demo [options]')}     posts sample tasks to a running Ackbox and shows their results

  --tasks N         number of tasks (default 1000): orders, materials and audit events. Four of each 200 fail on purpose
  --concurrency N   parallel requests (default 32)
  --url URL         address of the service (default ACKBOX_URL, else http://127.0.0.1:PORT; PORT from the environment, else 3000)
  --key KEY         API key (or --key-file FILE; default ACKBOX_KEY, else ACKBOX_DEMO_KEY, else the file demo-key in DATA_DIR or
                    .ackbox, which DEMO=on writes)
  --timeout N       seconds to wait for the results (default 120). Later ones count as wrong
  --help

Exit: 0 all results as expected · 1 an unexpected result, or no service · 130 Ctrl-C (prints the table so far)`

interface Run {
  client: ApiClient
  signal: AbortSignal
  tasks: DemoTask[]
  name: string
  concurrency: number
  deadline: number
  seen: Map<string, SeenTask>
  accepted: number
  /** Durations of the POSTs, ms. */
  posts: number[]
  acceptedInMs: number
}

export async function run(args: string[]): Promise<void> {
  process.exitCode = await show(readOptions(args))
}

async function show({ tasks, url, key, concurrency, timeoutS }: Options): Promise<number> {
  const stop = new AbortController()
  setMaxListeners(0, stop.signal) // one listener for each open request
  let interrupted = false
  onStop(() => {
    if (interrupted) process.exit(130)
    interrupted = true
    stop.abort()
  })
  const name = `demo-${Date.now().toString(36)}-${randomInt(1_296).toString(36)}`
  const run: Run = {
    client: openClient({ url, ...(key ? { key } : {}), sockets: concurrency + 2, signal: stop.signal }),
    signal: stop.signal,
    name,
    concurrency,
    tasks: Array.from({ length: tasks }, (_, i) => demoTask(name, i)),
    deadline: performance.now() + timeoutS * 1_000,
    seen: new Map(),
    accepted: 0,
    posts: [],
    acceptedInMs: 0
  }
  const started = performance.now()
  try {
    await greet(run, url)
    console.log(
      `Posting ${tasks} tasks to ${url} with sceneType ${name}. Most end within a second, retried ones within half a minute.`
    )
    await Promise.all([post(run), watch(run)])
  } catch (err) {
    if (!interrupted) throw err
  } finally {
    stop.abort() // if one of the two failed, the other must stop too
    run.client.close()
  }
  return finish(run, performance.now() - started, interrupted)
}

interface Options {
  tasks: number
  concurrency: number
  timeoutS: number
  url: string
  key: string | undefined
}

function readOptions(args: string[]): Options {
  const env = environment()
  const { values: given } = readArguments({
    args,
    options: {
      tasks: { type: 'string', default: '1000' },
      concurrency: { type: 'string', default: '32' },
      timeout: { type: 'string', default: '120' },
      url: { type: 'string' },
      key: { type: 'string' },
      'key-file': { type: 'string' }
    }
  })
  return {
    tasks: readWhole('--tasks', given.tasks, 1_000_000),
    concurrency: readWhole('--concurrency', given.concurrency, 1_000),
    timeoutS: readWhole('--timeout', given.timeout, 86_400),
    url: readUrl(given.url, env),
    key: readKey(given, env) ?? (env['ACKBOX_DEMO_KEY']?.trim() || readDemoKey(env['DATA_DIR'] || undefined))
  }
}

async function greet({ client, signal }: Run, url: string): Promise<void> {
  let reply: Reply
  try {
    reply = await client.call('GET', '/readyz')
  } catch (err) {
    if (signal.aborted) throw err
    throw new UsageError(
      `No service answers at ${url} (${messageOf(err)}): start one with \`${commandLine('start')}\`, or set --url`
    )
  }
  if (reply.status !== 200)
    throw new UsageError(
      `The service at ${url} is not ready (${reply.status}): ${JSON.stringify(reply.body)}`
    )
}

/** Posts all tasks, `concurrency` in parallel. After 429 or 5xx a task is posted again with the same taskNo. */
async function post(run: Run): Promise<void> {
  const started = performance.now()
  let next = 0
  await Promise.all(
    Array.from({ length: run.concurrency }, async () => {
      for (let task = run.tasks[next++]; task; task = run.tasks[next++]) {
        const before = performance.now()
        await postOne(run, task)
        run.posts.push(performance.now() - before)
        run.accepted++
        run.acceptedInMs = performance.now() - started
      }
    })
  )
}

async function postOne(run: Run, { post: body }: DemoTask): Promise<void> {
  for (;;) {
    let reply: Reply | undefined
    try {
      reply = await run.client.call('POST', '/tasks', body)
    } catch (err) {
      if (run.signal.aborted) throw err
    }
    if (reply?.status === 201 || reply?.status === 200) return
    if (reply && reply.status !== 429 && reply.status < 500) throw new UsageError(refusal(reply))
    if (performance.now() > run.deadline)
      throw new UsageError(`The service does not accept tasks: ${reply?.status ?? 'no answer'}`)
    await wait(1_000 * Math.min(5, Number(reply?.headers['retry-after']) || 1), undefined, {
      signal: run.signal
    })
  }
}

function refusal({ status, body }: Reply): string {
  const message = `The service refused a task: ${status} ${JSON.stringify(body)}`
  if (status === 401 || status === 403)
    return `${message}\nSet --key or ACKBOX_KEY. \`${commandLine('key create demo --scopes tasks:write,tasks:read')}\` creates a key`
  if (status === 422)
    return `${message}\nThe demo needs the sample handlers: start the service without HANDLERS_DIR`
  return message
}

/** Polls the tasks of this run until all have ended. Polling takes at most a tenth of the time, to put little load on the service. */
async function watch(run: Run): Promise<void> {
  let last = 0
  let mark = { ended: 0, at: performance.now(), perSecond: 0 }
  for (;;) {
    const before = performance.now()
    await look(run)
    const now = performance.now()
    const counts = count(run.seen.values())
    const over = counts.handled + counts.failed
    const perSecond = (over - mark.ended) / Math.max(0.001, (now - mark.at) / 1_000)
    // The rate of the last full second: a number that changes with each poll is unreadable.
    if (now - mark.at >= 1_000) mark = { ended: over, at: now, perSecond }
    const line = progressLine(
      run.tasks.length,
      run.accepted,
      counts,
      mark.perSecond || perSecond,
      process.stdout.columns || 200
    )
    const done = over >= run.tasks.length || now > run.deadline
    if (process.stdout.isTTY) process.stdout.write(`\r\u001B[2K${line}${done ? '\n' : ''}`)
    else if (done || now - last >= 2_000) {
      console.log(line)
      last = now
    }
    if (done) return
    await wait(Math.max(300, (now - before) * 9), undefined, { signal: run.signal })
  }
}

/** Reads every task of this run, page by page, newest first. */
async function look(run: Run): Promise<void> {
  let cursor: string | undefined
  do {
    const query = new URLSearchParams({ sceneType: run.name, limit: '200', ...(cursor ? { cursor } : {}) })
    let reply: Reply
    try {
      reply = await run.client.call('GET', `/tasks?${query.toString()}`)
    } catch (err) {
      if (run.signal.aborted) throw err
      return // the service is unreachable for a moment, the next poll reads again
    }
    if (reply.status === 429 || reply.status >= 500) return
    if (reply.status !== 200)
      throw new UsageError(`GET /tasks answered ${reply.status} ${JSON.stringify(reply.body)}`)
    // The service is ours: its OpenAPI defines this type.
    const page = reply.body as { tasks: SeenTask[]; nextCursor?: string }
    for (const task of page.tasks) run.seen.set(task.taskNo, task)
    cursor = page.nextCursor
  } while (cursor)
}

function finish(run: Run, tookMs: number, stopped: boolean): number {
  if (stopped && process.stdout.isTTY) process.stdout.write('\n')
  const posts = run.posts.toSorted((a, b) => a - b)
  const rate = run.accepted / Math.max(0.001, run.acceptedInMs / 1_000)
  console.log(`\n${table(run.seen.values())}\n`)
  console.log(
    `${run.accepted} accepted in ${ms(run.acceptedInMs)}: ${Math.round(rate)} tasks/s, ` +
      `POST p50 ${ms(percentile(posts, 0.5))}, p99 ${ms(percentile(posts, 0.99))}. ${stopped ? 'Stopped' : 'Done'} after ${ms(tookMs)}.`
  )
  if (stopped) return 130
  const wrong = surprises(run.tasks, run.seen)
  if (wrong.length === 0) {
    const onPurpose = run.tasks.filter(({ ends }) => ends === 'FAILED').length
    console.log(`Every task ended as expected. ${onPurpose} FAILED on purpose.`)
    return 0
  }
  console.log(
    `${wrong.length} did not end as expected:\n${wrong
      .slice(0, 20)
      .map(line => `  ${line}`)
      .join('\n')}`
  )
  return 1
}
