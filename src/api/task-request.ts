import type { TaskRequest } from '../delivery/accept.ts'
import { codesFor } from './access.ts'
import { mayUse, requireCode, type Caller } from './auth.ts'
import type { ApiDeps } from './deps.ts'
import { durationMs } from '../handler/define.ts'
import { isDtmTaskNo } from '../handler/dtm.ts'
import { invalid, refusalProblem, together } from './problem.ts'
import { instant, maxBodyBytes, taskBody, yearMs, type TaskBody } from './requests.ts'
import { isSameContent } from '../domain/content.ts'
import { checkAfterMs, contentOf } from './task-content.ts'
import { Problem, type Invalid, type ProblemCode } from '../runtime/errors.ts'
import { codeOfDefault, defaultTaskNo, mayBeHashedDefault, type JsonRead } from '../json/reader.ts'

/** The context for checking a posted task. */
export interface RequestContext {
  caller: Caller
  handlers: ApiDeps['handlers']
  refusal: ApiDeps['refusal']
  traceparent: string | null
  now: Date
}

/** One posted task. `ifNew` is a refusal for new tasks only: an accepted task stays accepted. */
export interface CheckedTask {
  taskRequest: TaskRequest
  ifNew: Problem | null
}

/** A posted value. Its body's text is number `index` of `read`. `pointer` is the JSON pointer to it: empty, or its place in a batch. */
export interface PostedTask {
  value: unknown
  read: JsonRead
  index: number
  pointer: string
}

/** Checks a task. The checks of its handler are left to `accept`, unless the task is refused anyway: the answer names all errors. */
export function readTaskRequest(posted: PostedTask, context: RequestContext): CheckedTask {
  const { value, read, index, pointer } = posted
  const parsed = taskBody.safeParse(value)
  if (!parsed.success) throw malformed(posted, parsed.error, context)
  const task = parsed.data
  const { caller } = context
  requireCode(caller, task.messageCode, `${pointer}/messageCode`)
  const { always, forNew } = problemsOf(task, noMalformed, posted, context)
  if (always.length > 0) throw combined([...always, ...forNew], task, posted, context)
  const text = read.bodyText(index) ?? ''
  return {
    taskRequest: {
      taskNo: task.taskNo ?? defaultTaskNo(task.messageCode, task.sceneType ?? '', text),
      messageCode: task.messageCode,
      sceneType: task.sceneType ?? '',
      messageBody: text,
      body: task.messageBody,
      ...contentOf(task, text),
      startAt: task.deliverStartTime === undefined ? null : instant(task.deliverStartTime),
      delayMs: task.delay ?? null,
      deliverBefore: task.deliverBefore === undefined ? null : instant(task.deliverBefore),
      needCallback: task.needCallback ?? null,
      retryTimes: task.retryTimes ?? null,
      extend: task.extend === undefined ? null : JSON.stringify(task.extend),
      traceparent: traceparentOf(task.traceparent) ?? context.traceparent,
      createdBy: caller.name,
      biz: bizOf(task),
      orderingKey: task.orderingKey ?? null,
      after: task.after === undefined ? null : { taskNos: task.after, codes: caller.messageCodes },
      ...(task.prepared
        ? { prepared: { checkAfterMs: durationMs(task.checkBack?.after) ?? checkAfterMs } }
        : {})
    },
    ifNew: forNew.length > 0 ? combined(forNew, task, posted, context) : null
  }
}

/** Conflicts are counted where they are found. */
const countedElsewhere: readonly ProblemCode[] = ['TASK_CONFLICT', 'BIZ_CONFLICT']

/** Counts the refusal of a posted task, if its messageCode has a handler: other codes would create new time series. */
export function countRefused(
  { handlers, metrics }: Pick<ApiDeps, 'handlers' | 'metrics'>,
  task: unknown,
  problem: unknown
): void {
  if (!(problem instanceof Problem) || countedElsewhere.includes(problem.code)) return
  const code =
    typeof task === 'object' && task !== null && 'messageCode' in task ? task.messageCode : undefined
  if (typeof code === 'string' && handlers.has(code)) metrics.accepted(code, 'refused')
}

const noMalformed: ReadonlySet<string> = new Set()

const bizOf = ({ bizType, bizKey, uniqueBiz }: TaskBody): NonNullable<TaskRequest['biz']> | null =>
  bizType === undefined || bizKey === undefined
    ? null
    : { type: bizType, key: bizKey, unique: uniqueBiz ?? false }

/** The problem of malformed members, with the problems of the others. */
function malformed(
  posted: PostedTask,
  error: Parameters<typeof invalid>[0],
  context: RequestContext
): Problem {
  const malformedNames = new Set(error.issues.map(({ path }) => String(path[0])))
  const members = Object.entries(Object(posted.value) as object).filter(
    ([name]) => name in taskBody.shape && !malformedNames.has(name)
  )
  const task = Object.fromEntries(members) as Partial<TaskBody>
  const { always, forNew } = problemsOf(task, malformedNames, posted, context)
  return combined([invalid(error, posted.pointer), ...always, ...forNew], task, posted, context)
}

/** The problems of a task besides malformed members, without the refusal of its handler. */
function problemsOf(
  task: Partial<TaskBody>,
  malformedNames: ReadonlySet<string>,
  { read, index, pointer: prefix }: PostedTask,
  { caller, handlers, now }: RequestContext
): { always: Problem[]; forNew: Problem[] } {
  const { taskNo, messageCode } = task
  const rules = brokenRules(task, malformedNames, now)
  const isForeign =
    taskNo !== undefined &&
    (isDtmTaskNo(taskNo) ||
      isOfOthers(taskNo, caller, handlers, () =>
        defaultTaskNo(messageCode ?? '', task.sceneType ?? '', read.bodyText(index) ?? '')
      ))
  if (isForeign)
    rules.forNew.unshift({ detail: 'looks like a default taskNo of another messageCode', pointer: '/taskNo' })
  const problem = (code: ProblemCode, detail: string, pointer: string) =>
    new Problem(code, detail, { pointer: prefix + pointer })
  const invalidAt = ({ detail, pointer }: Invalid) => problem('INVALID', detail, pointer)
  const always = rules.always.map(invalidAt)
  const bytes = read.bodyBytes(index)
  if (bytes > maxBodyBytes)
    always.unshift(problem('BODY_TOO_LARGE', `${bytes} bytes of at most ${maxBodyBytes}`, '/messageBody'))
  if (messageCode !== undefined && handlers.get(messageCode)?.dtm)
    always.unshift(problem('INVALID', 'accepts only messages from DTM clients', '/messageCode'))
  return { always, forNew: rules.forNew.map(invalidAt) }
}

/** The rules that a task breaks. `forNew`: those that hold for new tasks only, since an accepted task stays accepted. */
interface BrokenRules {
  always: Invalid[]
  forNew: Invalid[]
}

type Member = keyof TaskBody

/** The rules between members. `malformedNames`: the members that are wrong by themselves; no rule is judged by them. */
function brokenRules(task: Partial<TaskBody>, malformedNames: ReadonlySet<string>, now: Date): BrokenRules {
  const rules: BrokenRules = { always: [], forNew: [] }
  const broken = (
    member: Member,
    detail: string,
    judgedBy: readonly Member[] = [],
    list = rules.always
  ): void => {
    if (!judgedBy.some(name => malformedNames.has(name))) list.push({ detail, pointer: `/${member}` })
  }
  const { prepared = false, checkBack, after, bizType, bizKey, uniqueBiz = false, delay } = task
  if (prepared && after) broken('after', 'a half message cannot wait for other tasks')
  if (!prepared && checkBack) broken('checkBack', 'requires prepared: true', ['prepared'])
  // So that a search for one order finds all its tasks.
  if ((bizType === undefined) !== (bizKey === undefined) || (uniqueBiz && bizType === undefined)) {
    const missing = bizType === undefined ? 'bizType' : 'bizKey'
    broken(missing, 'set both bizType and bizKey, or neither', ['bizType', 'bizKey'])
  }
  const startAt = timeOf(task.deliverStartTime)
  const before = timeOf(task.deliverBefore)
  if (startAt !== null && delay !== undefined) broken('delay', 'set deliverStartTime or delay, not both')
  if (startAt !== null && startAt > now.getTime() + yearMs)
    broken('deliverStartTime', 'must be at most a year ahead')
  if (before === null) return rules
  if (before > now.getTime() + 2 * yearMs) broken('deliverBefore', 'must be at most two years ahead')
  const late = 'must be after the start of delivery'
  if (startAt !== null && before <= startAt) broken('deliverBefore', late)
  else if (before <= Math.max(startAt ?? 0, now.getTime() + (delay ?? 0)))
    broken('deliverBefore', late, [], rules.forNew)
  return rules
}

const timeOf = (text: string | undefined): number | null =>
  text === undefined ? null : (instant(text)?.getTime() ?? null)

/** These problems, and the refusal of the handler. The latter is hidden from a caller that may not use the handler. */
function combined(
  problems: Problem[],
  task: Partial<TaskBody>,
  { read, index, pointer }: PostedTask,
  { caller, handlers, refusal }: RequestContext
): Problem {
  const { messageCode, messageBody, prepared, needCallback } = task
  const all = [...problems]
  if (messageCode !== undefined && mayUse(caller, messageCode) && !handlers.get(messageCode)?.dtm) {
    const isChecked = messageBody !== undefined && read.bodyBytes(index) <= maxBodyBytes
    const refused = refusal({
      messageCode,
      prepared,
      needCallback,
      taskNo: task.taskNo,
      ...(isChecked && { body: messageBody })
    })
    if (refused) all.push(refusalProblem(refused, messageCode, codesFor(caller, handlers), pointer))
  }
  return together(all)
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
 * reveal whether another producer has a task with this number.
 */
export async function knownAmong(
  deps: Pick<ApiDeps, 'contents'>,
  caller: Caller,
  requests: readonly TaskRequest[]
): Promise<(request: TaskRequest) => boolean> {
  if (requests.length === 0) return () => false
  const stored = await deps.contents(requests.map(({ taskNo }) => taskNo))
  return request => {
    const known = stored.get(request.taskNo)
    return known !== undefined && (caller.messageCodes === null || isSameContent(known, request))
  }
}

// https://www.w3.org/TR/trace-context/#traceparent-header ; all zeros and version ff are invalid.
const trace = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/

/** A malformed traceparent is ignored, as its standard requires, and never refused. */
export function traceparentOf(header: string | string[] | undefined): string | null {
  return typeof header === 'string' && trace.test(header) ? header : null
}
