// DTM's two-phase messages: each step is a task. Each of DTM_TARGETS has a handler with one downstream of the same name.
import { downstreamForm } from '../domain/ids.ts'
import { hash } from 'node:crypto'
import { z } from 'zod'
import { defaultBackoff } from '../domain/retry-policy.ts'
import type { CheckAnswer, Task } from '../domain/types.ts'
import { headersOf } from '../transport/http/client.ts'
import type { HttpRequest } from '../transport/http/http.ts'
import type { Answer } from '../transport/types.ts'
import type { LoadedHandler, Steps } from './loaded.ts'

/** Name → origin: the servers that may receive the steps and the checks of a message. */
export type DtmTargets = ReadonlyMap<string, string>

const shape = 'names and origins, like orders=http://10.2.0.7:8080,stock=https://stock.example.com'

/** The targets in DTM_TARGETS, or the error in it. */
export function readTargets(text: string): Map<string, string> | string {
  const targets = new Map<string, string>()
  for (const part of text.split(',').map(each => each.trim())) {
    const [name = '', origin = '', ...rest] = part.split('=')
    if (!downstreamForm.test(name) || rest.length > 0) return `must be ${shape}`
    const url = URL.canParse(origin) ? new URL(origin) : undefined
    if (!url || !/^https?:$/.test(url.protocol) || url.href !== `${url.origin}/`)
      return `must be ${shape}: an origin has no path, no query and no password`
    if (targets.has(name)) return `names ${name} twice`
    if ([...targets.values()].includes(url.origin))
      return `has two names for one origin, the second is ${name}`
    targets.set(name, url.origin)
  }
  return targets
}

export const dtmCode = (target: string): string => `dtm.${target}`

/** The target that an address chosen by a producer belongs to, if any. */
export function targetOf(targets: DtmTargets, address: string): string | undefined {
  if (!URL.canParse(address)) return undefined
  const { origin, username, password } = new URL(address)
  if (username !== '' || password !== '') return undefined
  return [...targets].find(([, each]) => each === origin)?.[0]
}

const step = z.object({ branch: z.string().regex(/^\d\d$/), action: z.string(), payload: z.string() })

/** The messageBody of a step. The first step carries the others, until the statement of its commit stores them. */
const dtmBody = step.extend({
  gid: z.string(),
  headers: z.record(z.string(), z.string()),
  queryPrepared: z.string().optional(),
  /** Time between two checks, ms. */
  askEveryMs: z.int().optional(),
  inSequence: z.boolean().optional(),
  others: z.array(step).optional()
})
export type DtmBody = z.output<typeof dtmBody>

/** A taskNo of this form comes only from the DTM API. */
export const dtmTaskNo = (gid: string, branch: string): string => `dtm:${hash('sha256', gid)}:${branch}`
export const isDtmTaskNo = (taskNo: string): boolean => /^dtm:[0-9a-f]{64}:\d\d$/.test(taskNo)

/** The URL as DTM's server calls it: the parameters name the message and the branch. */
function addressed(
  targets: DtmTargets,
  target: string,
  address: string,
  more: Record<string, string>
): string {
  // DTM_TARGETS may have changed since the task was posted.
  if (targetOf(targets, address) !== target)
    throw new TypeError(`its address does not belong to ${target} of DTM_TARGETS`)
  const url = new URL(address)
  url.hash = ''
  url.search += `${url.search === '' ? '' : '&'}${new URLSearchParams(more).toString()}`
  return url.href
}

/** The error in branch_headers, if any. It would fail every attempt. */
export function wrongHeaders(headers: Record<string, string>): string | undefined {
  const made = headersOf(headers, { headers: () => ({}) }, '')
  return typeof made === 'string' ? made : undefined
}

const messageOf = (task: Readonly<Task>): DtmBody => dtmBody.parse(JSON.parse(task.messageBody))

function requestOf(targets: DtmTargets, target: string, body: DtmBody): HttpRequest {
  const { gid, branch } = body
  const url = addressed(targets, target, body.action, {
    gid,
    trans_type: 'msg',
    branch_id: branch,
    op: 'action'
  })
  return body.payload === ''
    ? { url, method: 'GET', headers: body.headers }
    : { url, headers: body.headers, body: body.payload }
}

/** 200 is success, unless its text holds FAILURE or ONGOING: some clients of DTM answer like this. */
const isSuccess = ({ status, text }: Answer): boolean => status === 200 && !/FAILURE|ONGOING/.test(text)

/** The status must fit too: the error page of a proxy may contain the word FAILURE. */
function checkAnswer({ status, text }: Answer): CheckAnswer | undefined {
  if (status === 425 || (status === 200 && text.includes('ONGOING'))) return 'UNKNOWN'
  if (status === 409 || (status === 200 && text.includes('FAILURE'))) return 'ROLLED_BACK'
  return status === 200 ? 'COMMITTED' : undefined
}

/** The other steps of a message, for the commit of its first one. */
function stepsOf(targets: DtmTargets, task: Readonly<Task>): Steps | null {
  const { gid, headers, inSequence = true, others = [] } = messageOf(task)
  if (others.length === 0) return null
  return {
    inSequence,
    tasks: others.map(other => ({
      taskNo: dtmTaskNo(gid, other.branch),
      messageCode: dtmCode(targetOf(targets, other.action) ?? ''),
      messageBody: JSON.stringify({ gid, ...other, headers } satisfies DtmBody)
    }))
  }
}

/** A handler for each target. */
export const dtmHandlers = (targets: DtmTargets): LoadedHandler[] =>
  [...targets.keys()].map(target => ({
    messageCode: dtmCode(target),
    file: 'DTM_TARGETS',
    body: dtmBody,
    downstreams: [
      {
        name: target,
        transport: 'http',
        request: ({ body }) => requestOf(targets, target, body as DtmBody),
        accepted: isSuccess,
        policy: { times: 100, backoff: defaultBackoff, receiptTimeoutMs: 60_000 },
        limit: { concurrency: 50, timeoutMs: 10_000 }
      }
    ],
    checkBack({ task }) {
      const { gid, queryPrepared } = messageOf(task)
      const checkTarget = queryPrepared === undefined ? undefined : targetOf(targets, queryPrepared)
      if (queryPrepared === undefined || checkTarget === undefined)
        throw new TypeError('its query_prepared belongs to no target of DTM_TARGETS')
      const more = { gid, trans_type: 'msg', branch_id: '00', op: 'msg' }
      return { url: addressed(targets, checkTarget, queryPrepared, more) }
    },
    dtm: {
      checkAnswer,
      askEveryMs: task => messageOf(task).askEveryMs ?? 10_000,
      steps: task => stepsOf(targets, task)
    }
  }))
