// The HTTP protocol of DTM (https://dtm.pub): its two-phase messages, as its clients send them. Only with DTM=on.
import type { FastifyReply, FastifyRequest } from 'fastify'
import { hash } from 'node:crypto'
import { z } from 'zod'
import { uuidv7 } from '../domain/ids.ts'
import { dtmCode, dtmTaskNo, targetOf, wrongHeaders, type DtmBody, type DtmTargets } from '../handler/dtm.ts'
import { Problem } from '../runtime/errors.ts'
import type { TaskRequest } from '../delivery/accept.ts'
import { callerOf, mayUse, quotaKeyOf, type Caller } from './auth.ts'
import { fit, readBody } from './body.ts'
import { whileConnected } from './connections.ts'
import type { ApiDeps } from './deps.ts'
import { ended } from './half.ts'
import { refuseOverload, unlessOverloaded } from './overload.ts'
import { acceptedTask, bodyOf, problemOf, sendProblem } from './problem.ts'
import { bizText, maxBodyBytes } from './requests.ts'
import { traceparentOf } from './task-request.ts'
import { actorOn } from './tasks.ts'
import type { App } from './typed.ts'

const seconds = z.number().min(0).max(31_536_000).nullish()

/** PHP clients write an object without members as a list. */
const noneOfPhp = (given: unknown): unknown => (Array.isArray(given) && given.length === 0 ? {} : given)

/** Other members are accepted and ignored: clients send all members of their class. */
const messageSchema = z.looseObject({
  // The bizKey of its tasks.
  gid: bizText(128),
  trans_type: z.string(),
  steps: z
    .array(z.looseObject({ action: z.string() }))
    .max(99)
    .nullish(),
  payloads: z.array(z.string()).nullish(),
  query_prepared: z.string().nullish(),
  custom_data: z.string().nullish(),
  wait_result: z.boolean().nullish(),
  concurrent: z.boolean().nullish(),
  timeout_to_fail: seconds,
  retry_interval: seconds,
  request_timeout: seconds,
  branch_headers: z.preprocess(noneOfPhp, z.record(z.string(), z.string()).nullish())
})
type Message = z.output<typeof messageSchema>

const delaySchema = z.looseObject({ delay: z.int().min(0).max(31_536_000).optional() })

/** Members of a message that are not supported. A refusal is better than ignoring them silently. */
const notOffered: [member: string, why: string][] = [
  ['bin_payloads', 'the gRPC wire is not offered: use the HTTP client'],
  ['passthrough_headers', 'passthrough_headers is not offered: branch_headers goes to every step'],
  ['topic', 'topics are not offered: name the address of each step']
]

export function dtmRoutes(app: App, deps: ApiDeps, targets: DtmTargets): void {
  const errorHandler = (error: Error, _request: FastifyRequest, reply: FastifyReply): void => {
    void sendWireProblem(reply, error, deps.log)
  }

  app.get('/api/dtmsvr/:operation', { schema: { hide: true }, errorHandler }, async request => {
    const operation = operationOf(request)
    if (operation !== 'newGid') throw unknownOperation(operation)
    return { gid: uuidv7(), dtm_result: 'SUCCESS' }
  })

  app.post(
    '/api/dtmsvr/:operation',
    { bodyLimit: 288 * 1024, preParsing: unlessOverloaded(deps), schema: { hide: true }, errorHandler },
    async (request, reply) => {
      const operation = operationOf(request)
      if (!['prepare', 'submit', 'abort'].includes(operation)) throw unknownOperation(operation)
      refuseOverload(deps)
      const message = messageOf(request.body)
      const caller = callerOf(request)
      if (operation === 'abort') {
        const taskNo = dtmTaskNo(message.gid, '01')
        ended(await deps.rollBack(taskNo, await actorOn(deps, caller, taskNo)))
        return { dtm_result: 'SUCCESS' }
      }
      const task = requestOf(message, targets, caller, traceparentOf(request.headers.traceparent))
      if (operation === 'prepare') await prepare(deps, message, task)
      else await submit(deps, caller, task)
      if (operation === 'submit' && message.wait_result && !(await isDone(deps, caller, message, request)))
        return reply
          .code(425)
          .send({ dtm_result: 'ONGOING', message: 'committed, but not all steps are HANDLED yet' })
      return { dtm_result: 'SUCCESS' }
    }
  )
}

const operationOf = (request: FastifyRequest): string => (request.params as { operation: string }).operation

/** Other calls of DTM clients. */
const others: Record<string, string> = {
  registerBranch: 'TCC and XA are not offered',
  registerXaBranch: 'XA is not offered',
  registerTccBranch: 'TCC is not offered',
  prepareWorkflow: 'workflows are not offered',
  subscribe: 'topics are not offered',
  unsubscribe: 'topics are not offered',
  deleteTopic: 'topics are not offered',
  topic: 'topics are not offered',
  query: 'query is not offered: GET /tasks?bizType=dtm&bizKey=GID shows the steps of a message',
  all: 'all is not offered: GET /tasks?bizType=dtm shows the steps of all messages',
  forceStop: 'forceStop is not offered: DELETE /tasks/{taskNo} stops a step',
  resetCronTime: 'resetCronTime is not offered: POST /tasks/{taskNo}/redeliver sends a step again',
  resetNextCronTime: 'resetNextCronTime is not offered: POST /tasks/{taskNo}/redeliver sends a step again'
}

const unknownOperation = (operation: string): Problem => {
  const why = Object.hasOwn(others, operation) ? others[operation] : undefined
  return why === undefined ? new Problem('NOT_FOUND') : new Problem('INVALID', why)
}

function messageOf(body: unknown): Message {
  const { value } = readBody(body, 'plain')
  const members = Object(value) as Record<string, unknown>
  const kind = members['trans_type']
  // Before the schema is checked: another kind has other members.
  if (typeof kind === 'string' && kind !== 'msg')
    throw refusal('trans_type', `${kind} is not offered: only msg, the two-phase message, is`)
  for (const [member, why] of notOffered) if (isSet(members[member])) throw refusal(member, why)
  const { protocol } = members
  if (isSet(protocol) && protocol !== 'http') throw refusal('protocol', 'only http is offered')
  return fit(messageSchema, value)
}

const refusal = (member: string, why: string): Problem =>
  new Problem('INVALID', why, { pointer: `/${member}` })

const isSet = (value: unknown): boolean =>
  value !== undefined && value !== null && value !== '' && !(Array.isArray(value) && value.length === 0)

/** The first step as a task. Its body holds the other steps. */
function requestOf(
  message: Message,
  targets: DtmTargets,
  caller: Caller,
  traceparent: string | null
): TaskRequest {
  const { gid, steps, payloads, query_prepared: queryPrepared, retry_interval: interval } = message
  const branches = (steps ?? []).map(({ action }, at) => ({
    branch: String(at + 1).padStart(2, '0'),
    action,
    payload: payloads?.[at] ?? ''
  }))
  const [first, ...rest] = branches
  if (!first) throw refusal('steps', 'a message has one step or more')
  if ((payloads?.length ?? 0) > branches.length)
    throw refusal('payloads', 'there are more payloads than steps')
  const codes = branches.map(({ action }, at) => codeOf(action, targets, caller, `steps/${at}/action`))
  if (isSet(queryPrepared)) codeOf(queryPrepared ?? '', targets, caller, 'query_prepared')
  const headers = message.branch_headers ?? {}
  const wrong = wrongHeaders(headers)
  if (wrong !== undefined) throw refusal('branch_headers', wrong)
  const inSequence = !message.concurrent
  const body: DtmBody = {
    gid,
    ...first,
    headers,
    ...(isSet(queryPrepared) ? { queryPrepared: queryPrepared ?? '' } : {}),
    ...(interval ? { askEveryMs: Math.max(1_000, Math.round(interval * 1000)) } : {}),
    ...(rest.length > 0 ? { inSequence, others: rest } : {})
  }
  const messageBody = JSON.stringify(body)
  const bytes = Buffer.byteLength(messageBody)
  if (bytes > maxBodyBytes)
    throw new Problem('BODY_TOO_LARGE', `${bytes} bytes of at most ${maxBodyBytes}, with all its steps`)
  return {
    taskNo: dtmTaskNo(gid, '01'),
    messageCode: codes[0] ?? '',
    sceneType: '',
    messageBody,
    body,
    // Only the steps. The settings of the check and the delay may be set by only one of the two calls.
    contentHash: hash('sha256', JSON.stringify([gid, branches, rest.length > 0 && inSequence]), 'base64url'),
    startAt: null,
    delayMs: delayOf(message),
    deliverBefore: null,
    needCallback: null,
    retryTimes: null,
    extend: null,
    traceparent,
    createdBy: caller.name,
    biz: { type: 'dtm', key: gid, unique: false }
  }
}

function codeOf(address: string, targets: DtmTargets, caller: Caller, at: string): string {
  if (address.startsWith('topic://'))
    throw refusal(at, 'topics are not offered: name the address of each step')
  const target = targetOf(targets, address)
  if (target === undefined)
    throw refusal(at, `must be an address of one of DTM_TARGETS: ${[...targets.keys()].join(', ')}`)
  if (!mayUse(caller, dtmCode(target)))
    throw new Problem('CODE_FORBIDDEN', dtmCode(target), { pointer: `/${at}` })
  return dtmCode(target)
}

/** The delay in `custom_data`, which is a text of JSON. */
function delayOf({ custom_data: data }: Message): number | null {
  if (!isSet(data)) return null
  let value: unknown
  try {
    value = JSON.parse(data ?? '')
  } catch {
    throw refusal('custom_data', 'must be the text of a JSON object')
  }
  const { delay } = fit(delaySchema, value, '/custom_data')
  return delay ? delay * 1000 : null
}

async function prepare(deps: ApiDeps, message: Message, request: TaskRequest): Promise<void> {
  if (!isSet(message.query_prepared))
    throw refusal(
      'query_prepared',
      'is required to prepare: Ackbox calls it to learn whether the message is committed'
    )
  const after = message.timeout_to_fail ? message.timeout_to_fail * 1000 : 35_000
  const { status } = await acceptStep(deps, {
    ...request,
    prepared: { checkAfterMs: Math.min(86_400_000, Math.max(1_000, Math.round(after))) }
  })
  if (status === 'PREPARED') return
  throw status === 'CANCELLED' ? new Problem('TASK_ROLLED_BACK') : new Problem('TASK_COMMITTED')
}

async function submit(deps: ApiDeps, caller: Caller, request: TaskRequest): Promise<void> {
  const { taskNo, delayMs } = request
  const { status } = await acceptStep(deps, request)
  if (status === 'CANCELLED') throw new Problem('TASK_ROLLED_BACK')
  if (status !== 'PREPARED') return
  ended(await deps.commit(taskNo, caller, delayMs))
}

async function acceptStep(deps: ApiDeps, request: TaskRequest) {
  const accepted = await deps.accept(request)
  // Not 409: to the client, that means that it was rolled back.
  if (accepted.kind === 'conflict') throw refusal('gid', 'is that of a message with other steps or payloads')
  return acceptedTask(accepted, request.messageCode, [])
}

/** `wait_result`: whether all steps are HANDLED before the client would give up. */
async function isDone(
  deps: ApiDeps,
  caller: Caller,
  { gid, steps, request_timeout: patience }: Message,
  request: FastifyRequest
): Promise<boolean> {
  const until = performance.now() + Math.min(patience || 8, 30) * 800
  return whileConnected(request, async signal => {
    for (const [at] of (steps ?? []).entries()) {
      const taskNo = dtmTaskNo(gid, String(at + 1).padStart(2, '0'))
      const leftMs = Math.max(0, until - performance.now())
      const task = await deps.waitTask(taskNo, quotaKeyOf(deps, request), leftMs, signal, caller.messageCodes)
      if (task === 'busy' || task?.status !== 'HANDLED') return false
    }
    return true
  })
}

/** A problem in a form that DTM clients understand: 409 is their FAILURE, and no other answer contains that word. */
function sendWireProblem(reply: FastifyReply, error: unknown, log: ApiDeps['log']): FastifyReply {
  const problem = problemOf(error)
  const { status, title, detail } = bodyOf(problem)
  if (status === 500) return sendProblem(reply, error, log)
  const wire = {
    ...bodyOf(problem),
    message: detail === undefined ? title : `${title}: ${detail}`,
    ...(status === 409 ? { dtm_result: 'FAILURE' } : {})
  }
  const text = JSON.stringify(wire)
  void reply.code(status).headers(problem.headers ?? {})
  return reply
    .type('application/json')
    .send(status === 409 ? text : text.replaceAll(/FAILURE|ONGOING/g, word => word.toLowerCase()))
}
