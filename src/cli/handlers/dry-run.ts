import { durationText } from '../../handler/define.ts'
import type { LoadedDownstream, LoadedHandler } from '../../handler/loaded.ts'
import type { Registry } from '../../handler/load.ts'
import { dryTask } from '../../delivery/dry-run.ts'
import { isWanted } from '../../delivery/fan-out.ts'
import { effectiveRetryTimes } from '../../domain/retry-policy.ts'
import { nearest } from '../../runtime/nearest.ts'
import type { Backoff, Task } from '../../domain/types.ts'
import { bodyOf as problemBodyOf, problemOf } from '../../api/problem.ts'
import { defaultTaskNo, readJson } from '../../json/reader.ts'
import { refusalOf } from '../task-refusal.ts'
import { messageOf } from '../../runtime/errors.ts'
import { UsageError } from '../arguments.ts'
import { unencoded } from './unencoded.ts'
import { dryRunId } from '../../handler/checked-request.ts'
import type { HttpRequest } from '../../transport/http/http.ts'

export interface DryRunDeps {
  registry: Registry
  /** The reason why no request may be sent to this URL. Undefined: it is allowed. */
  refused: (url: string) => string | undefined
}

/** Prints the request that each downstream of a handler would get, and sends nothing. */
export async function dryRun(
  { registry: { handlers }, refused }: DryRunDeps,
  messageCode: string,
  raw: string,
  sceneType: string
): Promise<void> {
  const handler = handlers.get(messageCode)
  if (!handler) {
    const meant = nearest(messageCode, [...handlers.keys()])
    throw new UsageError(
      `no handler has messageCode '${messageCode}': ${meant ? `did you mean '${meant}'?` : `the handlers are ${[...handlers.keys()].join(', ')}`}`
    )
  }
  const body = bodyOf(handlers, handler, raw, sceneType)
  const taskNo = defaultTaskNo(messageCode, sceneType, raw)
  const task = dryTask({ taskNo, messageCode, sceneType, messageBody: raw })
  console.log(`task ${task.taskNo}`)
  let failed = 0
  for (const downstream of handler.downstreams) {
    let lines: string[]
    try {
      lines = await wouldGet({ refused, handler, downstream }, task, body, raw)
    } catch (err) {
      failed++
      lines = [`The attempt would fail: ${messageOf(err)}`]
    }
    console.log(`\n${downstream.name}\n${lines.map(line => `  ${line}`).join('\n')}`)
  }
  if (handler.checkBack)
    console.log(`\ncheck back\n${(await checkLines(handler.checkBack, task)).join('\n')}`)
  console.log('\nNothing was sent.')
  if (failed > 0)
    throw new UsageError(`${failed} of ${handler.downstreams.length} downstreams would not get a request`)
}

/** The check that the producer would get if the task were a half message. */
async function checkLines(checkBack: NonNullable<LoadedHandler['checkBack']>, task: Task): Promise<string[]> {
  try {
    const { url, headers = {} } = await checkBack({ task })
    return [`  POST ${String(url)}`, ...Object.entries(headers).map(([name, value]) => `  ${name}: ${value}`)]
  } catch (err) {
    return [`  the check would fail: ${messageOf(err)}`]
  }
}

/** Throws the refusal that POST /tasks would answer, also for errors outside the schema, such as a duplicate member. */
function bodyOf(
  handlers: Registry['handlers'],
  handler: LoadedHandler,
  raw: string,
  sceneType: string
): unknown {
  try {
    // First the messageBody alone: its errors have their place in it, and it must not add members to the task.
    readJson(Buffer.from(raw), 'plain')
  } catch (err) {
    const { title, detail } = problemBodyOf(problemOf(err))
    throw new UsageError(
      `${title.replace('The body', 'The messageBody')}${detail === undefined ? '' : `: ${detail}`}`
    )
  }
  const { messageCode } = handler
  const members = `"messageCode":${JSON.stringify(messageCode)},"sceneType":${JSON.stringify(sceneType)}`
  const refused = refusalOf(`{${members},"messageBody":${raw}}`, handlers)
  if (!refused) return handler.body.parse(JSON.parse(raw))
  const { status, title = '', detail = title, pointer = '', errors = [{ detail, pointer }] } = refused
  const lines = errors.map(one => `  ${placeOf(one.pointer)}  ${one.detail}`)
  throw new UsageError(`POST /tasks of ${messageCode} would answer ${status}:\n${lines.join('\n')}`)
}

function placeOf(pointer: string): string {
  if (pointer === '/messageBody') return 'the whole messageBody'
  if (pointer === '/sceneType') return '--scene'
  return pointer.replace(/^\/messageBody(?=\/)/, '')
}

interface Destination extends Pick<DryRunDeps, 'refused'> {
  handler: LoadedHandler
  downstream: LoadedDownstream
}

async function wouldGet(
  { refused, handler, downstream }: Destination,
  task: Task,
  body: unknown,
  raw: string
): Promise<string[]> {
  const lines: string[] = []
  try {
    if (!isWanted(downstream, { task, body })) return ['no request: `when` returned false (SKIPPED)']
  } catch (err) {
    lines.push(`WARNING: \`when\` failed, so the task is sent: ${messageOf(err)}`)
  }
  const request = await downstream.request({ task, body, raw, attempt: 1, deliveryId: dryRunId })
  // It may have effects: a reservation, or a request of its own.
  if (downstream.beforeSend) lines.push('beforeSend is not called: it may skip or postpone the attempt')
  const isHttp = downstream.transport === 'http'
  if (isHttp) {
    const why = refused(String((request as HttpRequest).url))
    if (why !== undefined) throw new Error(why)
    const names = await unencoded(handler, downstream, task, raw)
    if (names.length > 0)
      lines.push(
        `WARNING: ${names.join(' and ')} ${names.length > 1 ? 'go' : 'goes'} into the url without encoding: a / or ? in it changes the request. Build it with url\`…\``
      )
  }
  const shown = isHttp
    ? httpLines(request as HttpRequest, task, raw, downstream.needCallback ?? false)
    : otherLines(downstream.transport, request, task, raw)
  return [...lines, ...shown, ...after(downstream)]
}

function httpLines(request: HttpRequest, task: Task, raw: string, owesReceipt: boolean): string[] {
  const { body = raw } = request
  return [
    `${request.method ?? 'POST'} ${String(request.url)}`,
    ...Object.entries(request.headers ?? {}).map(([name, value]) => `${name}: ${value}`),
    `ackbox-task-no: ${task.taskNo}`,
    `and webhook-id, webhook-timestamp, webhook-signature, ackbox-message-code, ackbox-scene-type, ackbox-attempt, ackbox-round, ackbox-forget-after${owesReceipt ? ', ackbox-callback-url, ackbox-callback-token' : ''}`,
    typeof body === 'string' ? body : `${body.length} bytes`
  ]
}

/** The request of RPC and queues, member by member. Without its own payload it contains the messageBody. */
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
  const tries = `${effectiveRetryTimes(null, policy)} tries, waiting ${backoffText(policy.backoff)}`
  return [
    needCallback
      ? `HANDLED when its receipt arrives, within ${durationText(policy.receiptTimeoutMs)} per try; ${tries}`
      : `HANDLED when it is delivered; ${tries}`
  ]
}

export function backoffText(backoff: Backoff): string {
  if (backoff.kind === 'list') return `${backoff.ms.map(durationText).join(' ')} …`
  return `${durationText(backoff.firstMs)} ×2 … ${durationText(backoff.maxMs)}`
}
