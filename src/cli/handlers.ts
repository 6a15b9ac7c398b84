// ackbox handlers: lists and checks the handlers, and shows the requests of a dry run.

import { parseArgs } from 'node:util'
import { environment, readConfig, SettingError } from '../service/config.ts'
import { demoEnv } from '../demo/receiver.ts'
import { aligned } from './demo/show.ts'
import { type LoadedDownstream, type LoadedHandler, type Requests, durationText } from '../handler/define.ts'
import { builtInHandlers } from '../handler/files.ts'
import { HandlersError, loadHandlers, type Registry } from '../handler/load.ts'
import { nearest } from '../runtime/nearest.ts'
import { commandLine } from '../runtime/package.ts'
import type { Backoff, Task } from '../domain/types.ts'
import { defaultTaskNo } from '../json/reader.ts'
import { transportNames } from '../transport/registry.ts'

const dryRunLine = commandLine("handlers --dry-run <messageCode> '<messageBody>'")
export const help = `${commandLine('handlers').padEnd(dryRunLine.length)}  lists and checks the handlers
${dryRunLine}  shows the request to each downstream, without sending it

  --scene TEXT   the sceneType of the dry run (default empty)
  --help

It reads the settings of the service: HANDLERS_DIR, DEMO, and the variables that the handlers take from env.
Exit: 0 no errors · 1 errors, which are printed`

/** Wrong arguments, or a task that would be refused. The message says why. */
class AskedWrong extends Error {}

export async function run(args: string[]): Promise<void> {
  try {
    await perform(args)
  } catch (err) {
    if (!(err instanceof AskedWrong || err instanceof HandlersError || err instanceof SettingError)) throw err
    console.error(err.message)
    process.exitCode = 1
  }
}

async function perform(args: string[]): Promise<void> {
  const { values, positionals } = readArguments(args)
  const config = readConfig(environment())
  const registry = await loadHandlers({
    ...(config.handlersDir === undefined ? {} : { dir: config.handlersDir }),
    builtIn: builtInHandlers,
    // The port of the demo receiver is known only to a running service. Here its name stands for it.
    env: config.demo ? { ...demoEnv('http://demo-receiver'), ...process.env } : process.env,
    transports: transportNames
  })
  if (!values['dry-run']) return list(registry)
  const [messageCode, messageBody] = positionals
  if (messageCode === undefined || messageBody === undefined || positionals.length > 2)
    throw new AskedWrong(help)
  await dryRun(registry, messageCode, messageBody, values.scene)
}

function readArguments(args: string[]) {
  try {
    return parseArgs({
      args,
      allowPositionals: true,
      options: {
        'dry-run': { type: 'boolean', default: false },
        scene: { type: 'string', default: '' }
      }
    })
  } catch (err) {
    throw new AskedWrong(`${err instanceof Error ? err.message : String(err)}\n\n${help}`)
  }
}

function list({ handlers, downstreams }: Registry): void {
  const rows = [...handlers.values()].flatMap(handler =>
    handler.downstreams.map((downstream, at) => [
      at === 0 ? handler.messageCode : '',
      at === 0 ? handler.file : '',
      downstream.name,
      ...facts(downstream)
    ])
  )
  const head = [
    'messageCode',
    'file',
    'downstream',
    'transport',
    'receipt',
    'tries',
    'backoff',
    'parallel',
    'per second',
    'timeout'
  ]
  console.log(aligned([head, ...rows], 5))
  console.log(`\n${handlers.size} handlers, ${downstreams.size} downstreams, no errors`)
}

function facts({ transport, needCallback, policy, limit }: LoadedDownstream): string[] {
  return [
    transport,
    needCallback ? `in ${durationText(policy.receiptTimeoutMs)}` : 'no',
    String(policy.times ?? 10),
    backoffText(policy.backoff),
    limit.pipelining === undefined
      ? `${limit.concurrency}`
      : `${limit.concurrency} (${limit.pipelining} per connection)`,
    String(limit.perSecond ?? '–'),
    durationText(limit.timeoutMs)
  ]
}

function backoffText(backoff: Backoff): string {
  if (backoff.kind === 'list') return `${backoff.ms.map(durationText).join(' ')} …`
  return `${durationText(backoff.firstMs)} ×2 … ${durationText(backoff.maxMs)}`
}

async function dryRun(
  { handlers }: Registry,
  messageCode: string,
  raw: string,
  sceneType: string
): Promise<void> {
  const handler = handlers.get(messageCode)
  if (!handler) {
    const meant = nearest(messageCode, [...handlers.keys()])
    throw new AskedWrong(
      `no handler has messageCode '${messageCode}': ${meant ? `did you mean '${meant}'?` : `the handlers are ${[...handlers.keys()].join(', ')}`}`
    )
  }
  const body = bodyOf(handler, raw)
  const task: Task = {
    id: '00000000-0000-7000-8000-000000000000',
    taskNo: defaultTaskNo(messageCode, sceneType, raw),
    messageCode,
    sceneType,
    messageBody: raw,
    deliverStartTime: null,
    needCallback: null,
    retryTimes: null,
    extend: null,
    traceparent: null,
    createdAt: new Date(),
    createdBy: 'dry-run'
  }
  console.log(`task ${task.taskNo}`)
  let failed = 0
  for (const downstream of handler.downstreams) {
    let lines: string[]
    try {
      // In the order of the handler.
      lines = await wouldGet(downstream, task, body, raw)
    } catch (err) {
      failed++
      lines = [`The attempt would fail: ${err instanceof Error ? err.message : String(err)}`]
    }
    console.log(`\n${downstream.name}\n${lines.map(line => `  ${line}`).join('\n')}`)
  }
  console.log('\nNothing was sent.')
  if (failed > 0)
    throw new AskedWrong(`${failed} of ${handler.downstreams.length} downstreams would not get a request`)
}

function bodyOf(handler: LoadedHandler, raw: string): unknown {
  let value: unknown
  try {
    value = JSON.parse(raw)
  } catch (err) {
    throw new AskedWrong(`The messageBody is not JSON: ${err instanceof Error ? err.message : String(err)}`)
  }
  const read = handler.body.safeParse(value)
  if (read.success) return read.data
  const issues = read.error.issues.map(issue => `  /${issue.path.join('/')}  ${issue.message}`)
  throw new AskedWrong(
    `POST /tasks would answer 422. The messageBody does not match the schema of ${handler.messageCode}:\n${issues.join('\n')}`
  )
}

async function wouldGet(
  downstream: LoadedDownstream,
  task: Task,
  body: unknown,
  raw: string
): Promise<string[]> {
  if (downstream.when?.({ task, body }) === false) return ['no request: `when` returned false (SKIPPED)']
  const first = await downstream.beforeSend?.({ task, body, attempt: 1 })
  if (first && 'skip' in first) return ['no request: `beforeSend` skips it']
  const request = await downstream.request({ task, body, raw, attempt: 1, deliveryId: 'dry-run' })
  const lines =
    first && 'postponeMs' in first
      ? [`beforeSend postpones it by ${durationText(first.postponeMs)}, then:`]
      : []
  const shown =
    downstream.transport === 'http'
      ? httpLines(request as Requests['http'], task, raw)
      : otherLines(downstream.transport, request, task, raw)
  return [...lines, ...shown, ...after(downstream)]
}

function httpLines(request: Requests['http'], task: Task, raw: string): string[] {
  const { body = raw } = request
  return [
    `${request.method ?? 'POST'} ${String(request.url)}`,
    ...Object.entries(request.headers ?? {}).map(([name, value]) => `${name}: ${value}`),
    `ackbox-task-no: ${task.taskNo}`,
    'and webhook-id, webhook-timestamp, webhook-signature, ackbox-message-code, ackbox-scene-type, ackbox-attempt',
    typeof body === 'string' ? body : `${body.length} bytes`
  ]
}

/** The request of RPC and queues, member by member. Without a payload of its own it carries the messageBody. */
function otherLines(transport: string, request: object, task: Task, raw: string): string[] {
  const text = (value: unknown) =>
    value instanceof Uint8Array
      ? `${value.length} bytes`
      : typeof value === 'string'
        ? value
        : JSON.stringify(value)
  const own = Object.entries(request).map(([name, value]) => `${name}: ${text(value)}`)
  const payload = ['args', 'body', 'value', 'payload', 'fields'].some(name => name in request) ? [] : [raw]
  return [`by ${transport}`, ...own, `ackbox-task-no: ${task.taskNo}`, ...payload]
}

function after({ needCallback, policy }: LoadedDownstream): string[] {
  const tries = `${policy.times ?? 10} tries, waiting ${backoffText(policy.backoff)}`
  return [
    needCallback
      ? `HANDLED when its receipt arrives, within ${durationText(policy.receiptTimeoutMs)} per try; ${tries}`
      : `HANDLED when it is delivered; ${tries}`
  ]
}
