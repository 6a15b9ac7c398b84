import { mayUse, type Caller } from './auth.ts'
import type { Asked } from './deps.ts'
import { fit } from './read.ts'
import { instant, maxBodyBytes, taskBody, type TaskBody } from './schemas.ts'
import { Problem } from '../errors.ts'
import { contentHash, defaultTaskNo, type JsonRead } from '../task/text.ts'

export interface Asking {
  caller: Caller
  traceparent: string | null
  now: Date
}

/** One posted task; `late` is the refusal that holds for a new task only, since it depends on when one asks. */
export interface AskedTask {
  asked: Asked
  late: Problem | null
}

/** Checks all but the handler's own schema. `value` is the envelope, whose body text is number `index` of `read`. */
export function askedTask(
  value: unknown,
  read: JsonRead,
  index: number,
  at: string,
  { caller, traceparent, now }: Asking
): AskedTask {
  const task = fit(taskBody, value, at)
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
  return {
    asked: {
      taskNo: task.taskNo ?? defaultTaskNo(task.messageCode, sceneType, text),
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
      traceparent,
      createdBy: caller.name
    },
    late: times.late
  }
}

const yearMs = 366 * 86_400_000

function schedule(
  task: TaskBody,
  now: Date,
  at: string
): Pick<Asked, 'start' | 'deliverBefore'> & { late: Problem | null } {
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

/** One that is malformed is left out, as its standard asks, and never refused. */
export function traceparentOf(header: string | string[] | undefined): string | null {
  return typeof header === 'string' && trace.test(header) ? header : null
}
