import type { TaskRequest } from '../delivery/accept.ts'
import { mayUse, type Caller } from './auth.ts'
import type { ApiDeps } from './deps.ts'
import { fit } from './body.ts'
import { durationMs } from '../handler/define.ts'
import { isDtmTaskNo } from '../handler/dtm.ts'
import { instant, maxBodyBytes, taskBody, type TaskBody } from './requests.ts'
import { Problem } from '../runtime/errors.ts'
import {
  codeOfDefault,
  contentHash,
  defaultTaskNo,
  mayBeHashedDefault,
  type JsonRead
} from '../json/reader.ts'

export interface Asking {
  caller: Caller
  handlers: ApiDeps['handlers']
  traceparent: string | null
  now: Date
}

/** One posted task. `ifNew` is a refusal for new tasks only: an accepted task stays accepted. */
export interface AskedTask {
  asked: TaskRequest
  ifNew: Problem | null
}

/** Checks everything except the handler's schema. `value` is the envelope; its body text is number `index` of `read`. */
export function askedTask(
  value: unknown,
  read: JsonRead,
  index: number,
  at: string,
  { caller, handlers, traceparent, now }: Asking
): AskedTask {
  const task = fit(taskBody, value, at)
  if (handlers.get(task.messageCode)?.dtm)
    throw new Problem('INVALID', "takes the messages of DTM's clients only", { pointer: `${at}/messageCode` })
  if (!mayUse(caller, task.messageCode))
    throw new Problem('CODE_FORBIDDEN', '', { pointer: `${at}/messageCode` })
  if (read.bodyBytes(index) > maxBodyBytes) {
    throw new Problem('BODY_TOO_LARGE', `${read.bodyBytes(index)} bytes of at most ${maxBodyBytes}`, {
      pointer: `${at}/messageBody`
    })
  }
  const text = read.bodyText(index) ?? ''
  const sceneType = task.sceneType ?? ''
  const times = schedule(task, now, at)
  const biz = bizOf(task, at)
  const byDefault = () => defaultTaskNo(task.messageCode, sceneType, text)
  const { taskNo } = task
  const taken =
    taskNo !== undefined && (isDtmTaskNo(taskNo) || isOfOthers(taskNo, caller, handlers, byDefault))
  return {
    asked: {
      taskNo: task.taskNo ?? byDefault(),
      messageCode: task.messageCode,
      sceneType,
      messageBody: text,
      body: task.messageBody,
      contentHash: contentHash(task, text),
      start: times.start,
      deliverBefore: times.deliverBefore,
      needCallback: task.needCallback ?? null,
      retryTimes: task.retryTimes ?? null,
      extend: task.extend === undefined ? null : JSON.stringify(task.extend),
      traceparent: traceparentOf(task.traceparent) ?? traceparent,
      createdBy: caller.name,
      biz,
      orderingKey: task.orderingKey ?? null,
      after: task.after === undefined ? null : { taskNos: task.after, codes: caller.messageCodes },
      ...preparedOf(task, at)
    },
    ifNew: taken
      ? new Problem('INVALID', 'has the form of the numbers of another messageCode', {
          pointer: `${at}/taskNo`
        })
      : times.late
  }
}

const checkAfterMs = 35_000

function preparedOf(
  { prepared = false, checkBack, after }: TaskBody,
  at: string
): Pick<TaskRequest, 'prepared'> {
  if (prepared && after)
    throw new Problem('INVALID', 'a half message cannot wait for others', { pointer: `${at}/after` })
  if (prepared) return { prepared: { checkAfterMs: durationMs(checkBack?.after) ?? checkAfterMs } }
  if (checkBack === undefined) return {}
  throw new Problem('INVALID', 'is of a prepared task: say prepared: true too', {
    pointer: `${at}/checkBack`
  })
}

/**
 * A key bound to message codes must not use the future number of another code's task: that task would be refused for ever. A
 * hashed number shows no messageCode, so it is refused only if a code is long enough to need one.
 */
function isOfOthers(
  taskNo: string,
  caller: Caller,
  handlers: ApiDeps['handlers'],
  byDefault: () => string
): boolean {
  if (caller.messageCodes === null) return false
  const code = codeOfDefault(taskNo)
  if (code !== undefined) return handlers.has(code) && !mayUse(caller, code)
  for (const one of handlers.keys())
    if (mayBeHashedDefault(taskNo, one) && !mayUse(caller, one)) return taskNo !== byDefault()
  return false
}

/**
 * The known tasks among these. For a bound key only tasks with exactly this content: a refusal that creates no task must not
 * tell whether others have one with this number.
 */
export async function knownAmong(
  deps: Pick<ApiDeps, 'contentHashes'>,
  caller: Caller,
  asked: readonly TaskRequest[]
): Promise<(one: TaskRequest) => boolean> {
  if (asked.length === 0) return () => false
  const stored = await deps.contentHashes(asked.map(one => one.taskNo))
  return ({ taskNo, contentHash }) =>
    caller.messageCodes === null ? stored.has(taskNo) : stored.get(taskNo) === contentHash
}

/** Both or neither, so that a search for one finds all of it. */
function bizOf({ bizType, bizKey, uniqueBiz }: TaskBody, at: string): NonNullable<TaskRequest['biz']> | null {
  if (bizType !== undefined && bizKey !== undefined)
    return { type: bizType, key: bizKey, unique: uniqueBiz ?? false }
  if (bizType === undefined && bizKey === undefined && !uniqueBiz) return null
  const missing = bizType === undefined ? 'bizType' : 'bizKey'
  throw new Problem('INVALID', 'say bizType and bizKey, or neither', { pointer: `${at}/${missing}` })
}

const yearMs = 366 * 86_400_000

function schedule(
  task: TaskBody,
  now: Date,
  at: string
): Pick<TaskRequest, 'start' | 'deliverBefore'> & { late: Problem | null } {
  const startAt = task.deliverStartTime === undefined ? null : instant(task.deliverStartTime)
  const deliverBefore = task.deliverBefore === undefined ? null : instant(task.deliverBefore)
  if (startAt && task.delay !== undefined) {
    throw new Problem('INVALID', 'say deliverStartTime or delay, not both', { pointer: `${at}/delay` })
  }
  const tooFar = (name: string) =>
    new Problem('INVALID', 'must be at most a year ahead', { pointer: `${at}/${name}` })
  if (startAt && startAt.getTime() > now.getTime() + yearMs) throw tooFar('deliverStartTime')
  if (deliverBefore && deliverBefore.getTime() > now.getTime() + 2 * yearMs) throw tooFar('deliverBefore')
  const start = startAt ? { at: startAt } : task.delay === undefined ? null : { delayMs: task.delay }
  if (!deliverBefore) return { start, deliverBefore, late: null }
  const early = new Problem('INVALID', 'must be after the start of delivery', {
    pointer: `${at}/deliverBefore`
  })
  if (startAt && deliverBefore <= startAt) throw early
  const from = Math.max(startAt?.getTime() ?? 0, now.getTime() + (task.delay ?? 0))
  return { start, deliverBefore, late: deliverBefore.getTime() <= from ? early : null }
}

// https://www.w3.org/TR/trace-context/#traceparent-header ; all zeros and version ff are none.
const trace = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/

/** A malformed traceparent is ignored, as its standard asks, and never refused. */
export function traceparentOf(header: string | string[] | undefined): string | null {
  return typeof header === 'string' && trace.test(header) ? header : null
}
