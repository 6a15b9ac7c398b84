// ackbox tasks: an operator's actions on tasks, through the API of a running service.
import { defined } from '../domain/optional-members.ts'
import { durationMs } from '../handler/define.ts'
import { commandLine } from '../runtime/package.ts'
import type { TaskView } from '../db/views.ts'
import { readDemoKey } from '../demo/key.ts'
import { isTransient, retryAfter } from '../producer/call.ts'
import { environment } from '../service/config.ts'
import { counted, readKey, readUrl, UsageError } from './arguments.ts'
import { openClient, type ApiClient } from './client.ts'
import { checkArguments, placeOf, readArguments, type Given, type Verb } from './tasks/arguments.ts'
import { showOperation, showTask, showTasks, type Operation, type TaskPage } from './tasks/show.ts'
import { sleep } from '../runtime/repeat.ts'
import { messageOf } from '../runtime/errors.ts'

export const help = `${commandLine('tasks VERB [options]')}    lists and changes tasks, through the API of a running service

  list                       lists the tasks that match the filters, the newest first
  show TASKNO                shows a task with its deliveries, attempts and receipts
  push TASKNO                delivers now instead of waiting for the next try
  settle TASKNO STATUS       ends deliveries that are open or FAILED, without sending. STATUS is HANDLED or DELETED
  redeliver TASKNO           sends FAILED deliveries again
  redeliver --all            sends all FAILED deliveries that match the filters again, and shows the progress
  follow OPERATION           shows the progress of a redelivery of --all until it ends
  stop OPERATION             stops a redelivery of --all

Filters of list and redeliver --all:
  --status STATUS            SENDING, HANDLED, FAILED, DELETED, PREPARED or CANCELLED. redeliver --all takes only FAILED
  --code CODE                the messageCode, such as order.paid
  --scene TEXT               the sceneType
  --downstream NAME          the downstream of a delivery
  --biz TYPE:KEY             the business key, such as order:A-1001
  --by KEY                   the name of the API key that posted the task
  --prefix TEXT              the beginning of the taskNo
  --reason CODE              why a delivery ended, such as SEND_EXHAUSTED
  --text TEXT                a part of the last reason
  --from TIME, --to TIME     when the task was created: a time with its zone, or 2h for two hours ago. Without --from, list shows
                             the last 24 hours, and all times of FAILED, SENDING, PREPARED and --biz. --all covers all times

Other options:
  --limit N                  list: the most tasks to show, at most 200 (default 50)
  --cursor TEXT              list: goes on after an earlier list, which prints its cursor
  --downstream NAME          push, settle, redeliver TASKNO: only the delivery to this downstream
  --reason TEXT              settle: why. It is required
  --force                    redeliver TASKNO: also deliveries that are HANDLED or past deliverBefore
  --dry-run                  redeliver --all: counts the deliveries, and redelivers none
  --url URL                  address of the service (default ACKBOX_URL, else http://127.0.0.1:PORT)
  --key KEY                  API key with the scopes ops:read and ops:write (or --key-file FILE; default ACKBOX_KEY, else the key that
                             DEMO=on keeps)
  --json                     prints the answers of the API as they are
  --help

Exit: 0 done, also if nothing matches list or --all · 1 refused, the task has nothing to do, or the redelivery was stopped`

const pollMs = 500
const patienceMs = 60_000
/** How often a call is made that gets 429, and the longest wait before the next one. */
const mostTries = 5
const mostWaitMs = 10_000
/** The time between progress lines when the output is not a terminal. */
const lineMs = 10_000

interface ProblemAnswer {
  title?: string
  detail?: string
  code?: string
  pointer?: string
  errors?: { detail: string; pointer: string }[]
}

/** Nobody answers at the address, or the answer is not of success. `problem`: the unchanged answer of the API, for --json. */
class CallError extends UsageError {
  /** Whether the same call may succeed later: the service restarts, or is busy. */
  readonly isTransient: boolean
  readonly problem: object | undefined
  constructor(text: string, status?: number, problem?: object) {
    super(text)
    this.isTransient = isTransient({ status })
    this.problem = problem
  }
}

export async function run(args: string[]): Promise<void> {
  const { verb, words, given } = readArguments(args)
  const stop = new AbortController()
  let client: ApiClient | undefined
  try {
    checkArguments(verb, words, given)
    const env = environment()
    const url = readUrl(given.url, env)
    const key = readKey(given, env) ?? readDemoKey(env['DATA_DIR'] || undefined)
    client = openClient({ url, ...(key ? { key } : {}), sockets: 2, signal: stop.signal })
    await perform(client, url, verb, words, given)
  } catch (err) {
    if (!given.json || !(err instanceof CallError) || !err.problem) throw err
    console.log(JSON.stringify(err.problem))
    process.exitCode = 1
  } finally {
    client?.close()
  }
}

async function perform(
  client: ApiClient,
  url: string,
  verb: Verb,
  words: string[],
  given: Given
): Promise<void> {
  const ask = async <Answer>(method: 'GET' | 'POST', path: string, body?: object): Promise<Answer> => {
    const callOnce = () =>
      client.call(method, path, body).catch((err: unknown) => {
        throw new CallError(`No service answers at ${url} (${messageOf(err)}): set --url`)
      })
    let reply = await callOnce()
    // A request with this answer was not processed: its key has reached a limit.
    for (let tries = 1; reply.status === 429 && tries < mostTries; tries++) {
      await sleep(Math.min(retryAfter(reply.headers['retry-after']?.toString()) ?? 1_000, mostWaitMs))
      reply = await callOnce()
    }
    const isJson = typeof reply.body === 'object' && reply.body !== null
    // A proxy gives such an answer while the service restarts.
    if (!isJson && reply.status >= 500)
      throw new CallError(`${url} answered HTTP ${reply.status}: try again`, reply.status)
    if (!isJson)
      throw new CallError(`The server at ${url} is not Ackbox (HTTP ${reply.status}, no JSON): set --url`)
    if (reply.status < 300) return reply.body as Answer
    const problem = reply.body as ProblemAnswer
    throw new CallError(refusal(problem, reply.status, verb), reply.status, problem)
  }
  const print = <Answer>(answer: Answer, show: (answer: Answer) => void): void =>
    given.json ? console.log(JSON.stringify(answer)) : show(answer)
  const printEnd = (ended: Operation): void => {
    if (ended.state !== 'DONE') process.exitCode = 1
    print(ended, showOperation)
  }
  const only = defined({ downstream: given.downstream })
  const [first = '', status = ''] = words
  const taskPath = `/tasks/${encodeURIComponent(first)}`

  switch (verb) {
    case 'list': {
      const query = new URLSearchParams(filterOf(given))
      if (given.status !== undefined) query.set('status', given.status)
      if (given.limit !== undefined) query.set('limit', given.limit)
      if (given.cursor !== undefined) query.set('cursor', given.cursor)
      return print(await ask<TaskPage>('GET', `/tasks?${query.toString()}`), showTasks)
    }
    case 'show':
      return print(await ask<TaskView>('GET', taskPath), showTask)
    case 'push':
      return print(await ask<TaskView>('POST', `${taskPath}/push`, only), showTask)
    case 'settle': {
      if (given.reason === undefined)
        throw new UsageError(`Missing reason: ${commandLine('tasks settle TASKNO HANDLED --reason TEXT')}`)
      const body = { status: status.toUpperCase(), reason: given.reason, ...only }
      return print(await ask<TaskView>('POST', `${taskPath}/settle`, body), showTask)
    }
    case 'redeliver': {
      if (!given.all) {
        const body = { ...only, ...(given.force ? { force: true } : {}) }
        return print(await ask<TaskView>('POST', `${taskPath}/redeliver`, body), showTask)
      }
      if (given.status !== undefined && given.status !== 'FAILED')
        throw new UsageError('--all redelivers only FAILED deliveries')
      const filter = filterOf(given)
      if (given['dry-run'])
        return print(
          await ask<{ matched: number | string }>('POST', '/tasks/redeliver', { filter, dryRun: true }),
          ({ matched }) => console.log(`${counted(matched, 'delivery', 'deliveries')} would be redelivered`)
        )
      const begun = await ask<Operation>('POST', '/tasks/redeliver', { filter })
      console.error(
        `Operation ${begun.id}: ${begun.matched} match. Ctrl-C leaves it running; ${commandLine(`tasks follow ${begun.id}`)} shows it again, ${commandLine(`tasks stop ${begun.id}`)} stops it`
      )
      const ended = await follow(ask, begun).catch((err: unknown) => {
        if (err instanceof CallError)
          console.error(
            `Operation ${begun.id} goes on all the same: ${commandLine(`tasks follow ${begun.id}`)} shows its progress`
          )
        throw err
      })
      return printEnd(ended)
    }
    case 'follow':
      return printEnd(await follow(ask, await ask('GET', `/operations/${encodeURIComponent(first)}`)))
    case 'stop':
      return print(
        await ask<Operation>('POST', `/operations/${encodeURIComponent(first)}/stop`, {}),
        showOperation
      )
  }
}

/** The text of a problem. Each error is shown with its option or word of the command line. */
function refusal(
  { code = '', title, detail, pointer, errors = [] }: ProblemAnswer,
  status: number,
  verb: Verb
): string {
  const head = `${code}: ${title ?? status}`
  // The API's detail is about a header, which is of no use on a command line.
  if (code === 'UNAUTHORIZED') return `${head}: set --key KEY or ACKBOX_KEY`
  if (errors.length > 1)
    return [head, ...errors.map(one => `  ${placeOf(one.pointer, verb)}: ${one.detail}`)].join('\n')
  const place = pointer === undefined ? '' : ` (${placeOf(pointer, verb)})`
  return `${head}${detail === undefined ? '' : `: ${detail}`}${place}`
}

/** Asks until the operation has ended. A service that restarts, or is busy, is asked again for a minute. */
async function follow(
  ask: <Answer>(method: 'GET', path: string) => Promise<Answer>,
  begun: Operation
): Promise<Operation> {
  let printedAt = performance.now()
  let answeredAt = performance.now()
  let isLineOpen = false
  try {
    for (let now = begun; ;) {
      if (now.state !== 'RUNNING') return now
      await sleep(pollMs)
      try {
        now = await ask<Operation>('GET', `/operations/${begun.id}`)
      } catch (err) {
        const isPatient = performance.now() - answeredAt < patienceMs
        if (err instanceof CallError && err.isTransient && isPatient) continue
        throw err
      }
      answeredAt = performance.now()
      const line = `${now.redelivered} of ${now.matched} redelivered`
      if (process.stderr.isTTY) {
        process.stderr.write(`\r${line} `)
        isLineOpen = true
      } else if (performance.now() - printedAt >= lineMs) {
        printedAt = performance.now()
        console.error(line)
      }
    }
  } finally {
    if (isLineOpen) process.stderr.write('\n')
  }
}

/** The options as filters of the API. */
function filterOf(given: Given): Record<string, string> {
  const [bizType, ...bizKey] = given.biz?.split(':') ?? []
  const filter = {
    messageCode: given.code,
    sceneType: given.scene,
    downstream: given.downstream,
    bizType,
    bizKey: bizKey.length > 0 ? bizKey.join(':') : undefined,
    createdBy: given.by,
    taskNoPrefix: given.prefix,
    reason: given.reason,
    lastReason: given.text,
    from: timeOf('--from', given.from),
    to: timeOf('--to', given.to)
  }
  return Object.fromEntries(
    Object.entries(filter).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]]))
  )
}

/** Reads a time, or a duration before now. */
function timeOf(option: string, text: string | undefined): string | undefined {
  const ms = text === undefined ? undefined : durationMs(text)
  if (ms === undefined) return text
  const at = Date.now() - ms
  if (at < 0) throw new UsageError(`${option} ${text} is before 1970`)
  return new Date(at).toISOString()
}
