// ackbox handlers: lists and checks them, and shows the request that one would send.

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
export const help = `${commandLine('handlers').padEnd(dryRunLine.length)}  lists the handlers and checks them
${dryRunLine}  shows what each downstream would get; sends nothing

  --scene TEXT   the sceneType of the dry run (default empty)
  --help

It reads the same settings as the service: HANDLERS_DIR, DEMO and what the handlers take from env.
Exit: 0 all is well · 1 something is wrong, and said.`

/** What the user asked cannot be done; the message says why. */
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
    // The receiver of a running service has a port of its own; here its name has to do.
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
    'at once',
    'a second',
    'timeout'
  ]
  console.log(aligned([head, ...rows], 5))
  console.log(`\n${handlers.size} handlers, ${downstreams.size} downstreams: all is well`)
}

function facts({ transport, needCallback, policy, limit }: LoadedDownstream): string[] {
  return [
    transport,
    needCallback ? `in ${durationText(policy.receiptTimeoutMs)}` : 'no',
    String(policy.times ?? 10),
    backoffText(policy.backoff),
    limit.pipelining === undefined
      ? `${limit.concurrency}`
      : `${limit.concurrency} (${limit.pipelining} a connection)`,
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
      `no handler has messageCode '${messageCode}': ${meant ? `did you mean '${meant}'?` : `there are ${[...handlers.keys()].join(', ')}`}`
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
      // One after the other, in the handler's order, as they are read.
      lines = await wouldGet(downstream, task, body, raw)
    } catch (err) {
      failed++
      lines = [`the attempt would fail: ${err instanceof Error ? err.message : String(err)}`]
    }
    console.log(`\n${downstream.name}\n${lines.map(line => `  ${line}`).join('\n')}`)
  }
  console.log('\nNothing was sent.')
  if (failed > 0)
    throw new AskedWrong(`${failed} of ${handler.downstreams.length} downstreams would not get it`)
}

function bodyOf(handler: LoadedHandler, raw: string): unknown {
  let value: unknown
  try {
    value = JSON.parse(raw)
  } catch (err) {
    throw new AskedWrong(`the messageBody is not JSON: ${err instanceof Error ? err.message : String(err)}`)
  }
  const read = handler.body.safeParse(value)
  if (read.success) return read.data
  const issues = read.error.issues.map(issue => `  /${issue.path.join('/')}  ${issue.message}`)
  throw new AskedWrong(
    `POST /tasks would answer 422, for the schema of ${handler.messageCode}:\n${issues.join('\n')}`
  )
}

async function wouldGet(
  downstream: LoadedDownstream,
  task: Task,
  body: unknown,
  raw: string
): Promise<string[]> {
  if (downstream.when?.({ task, body }) === false) return ['nothing: when says no (SKIPPED)']
  const first = await downstream.beforeSend?.({ task, body, attempt: 1 })
  if (first && 'skip' in first) return ['nothing: beforeSend skips it']
  const request = await downstream.request({ task, body, raw, attempt: 1, deliveryId: 'dry-run' })
  const lines =
    first && 'postponeMs' in first
      ? [`beforeSend postpones it by ${durationText(first.postponeMs)}; then:`]
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

/** What RPC and queues are asked to do, member by member; where no payload is named it is the messageBody. */
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
      ? `HANDLED once its receipt has come, in ${durationText(policy.receiptTimeoutMs)} a try; ${tries}`
      : `HANDLED once it is delivered; ${tries}`
  ]
}
