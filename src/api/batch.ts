import type { AcceptResult, BatchAcceptResult, RetryLater } from '../delivery/accept.ts'
import { setImmediate as turn } from 'node:timers/promises'
import {
  readTaskRequest,
  countRefused,
  knownAmong,
  type CheckedTask,
  type RequestContext
} from './task-request.ts'
import type { ApiDeps } from './deps.ts'
import { refuseOverload } from './overload.ts'
import { codesFor } from './access.ts'
import { bodyOf, acceptedTask } from './problem.ts'
import { fit, taskText } from './body.ts'
import { batchShape, taskBody } from './requests.ts'
import { HandlerElsewhere, Problem, problemBody } from '../runtime/errors.ts'
import { readBatch } from '../json/reader.ts'

/** Bytes of bodies that are hashed and checked before the event loop serves other requests. */
const turnBytes = 512 * 1024

/**
 * One commit for all acceptable tasks. Each other task is refused in its place, and so is one that fails alone, or has to be posted again.
 * `hasElsewhere`: only another process can accept some of them.
 */
export async function acceptBatch(
  deps: ApiDeps,
  bytes: Buffer,
  context: RequestContext
): Promise<{ text: string; hasElsewhere: boolean }> {
  const read = await readBatch(bytes, turn)
  const { tasks } = fit(batchShape, read.value)
  const checked: (CheckedTask | Problem)[] = []
  let sinceTurn = 0
  for (const [index, task] of tasks.entries()) {
    checked.push(
      attempt(() => readTaskRequest({ value: task, read, index, pointer: `/tasks/${index}` }, context))
    )
    sinceTurn += read.bodyBytes(index) + 4_000
    if (sinceTurn < turnBytes) continue
    sinceTurn = 0
    await turn()
  }
  const ifNew = checked.flatMap(one => (one instanceof Problem || !one.ifNew ? [] : [one.taskRequest]))
  const isKnown = await knownAmong(deps, context.caller, ifNew)
  for (const [index, one] of checked.entries())
    if (!(one instanceof Problem) && one.ifNew && !isKnown(one.taskRequest)) checked[index] = one.ifNew
  const requests = checked.flatMap(one => (one instanceof Problem ? [] : [one.taskRequest]))
  // Other requests have run since the last check, perhaps with batches, too.
  refuseOverload(deps)
  const accepted = requests.length === 0 ? [] : await deps.acceptMany(requests)
  if (accepted.length !== requests.length)
    throw new Error('acceptMany answered for fewer tasks than it was given')
  // With no other answer in it, the whole batch is answered 500.
  if (
    checked.length > 0 &&
    accepted.length === checked.length &&
    accepted.every(one => one.kind === 'failed')
  )
    throw new Error('no task of the batch was accepted: see accept.failed')
  const answers = accepted.values()
  const codes = codesFor(context.caller, deps.handlers)
  const refuse = (problem: Problem, index: number, taskNo: string | undefined): string => {
    countRefused(deps, tasks[index], problem)
    return JSON.stringify({ taskNo, ...bodyOf(problem) })
  }
  const results = checked.map((one, index) => {
    if (one instanceof Problem) return refuse(one, index, taskNoOf(tasks[index]))
    const { taskNo } = one.taskRequest
    const answer = answers.next().value
    if (!answer || answer.kind === 'failed') return JSON.stringify({ taskNo, ...problemBody('INTERNAL') })
    if (isRetryLater(answer))
      return JSON.stringify({ taskNo, ...problemBody('UNAVAILABLE', retryReasons[answer.kind]) })
    const task = result(one, answer, codes, `/tasks/${index}`)
    return task instanceof Problem ? refuse(task, index, taskNo) : task
  })
  return { text: `{"results":[${results.join()}]}`, hasElsewhere: accepted.some(isRetryLater) }
}

const retryReasons = {
  elsewhere: new HandlerElsewhere().message,
  after_elsewhere: 'a task before it has to be sent again: send both again'
}

const isRetryLater = (answer: BatchAcceptResult): answer is RetryLater => answer.kind in retryReasons

function result(
  { taskRequest }: CheckedTask,
  accepted: AcceptResult,
  codes: readonly string[],
  at: string
): string | Problem {
  const task = attempt(() => acceptedTask(accepted, taskRequest.messageCode, codes, at))
  if (task instanceof Problem) return task
  const status = accepted.kind === 'created' ? 201 : 200
  return `{"taskNo":${JSON.stringify(taskRequest.taskNo)},"status":${status},"task":${taskText(task)}}`
}

/** The taskNo as posted, so that the caller recognises it. Undefined if it is malformed: such text is not echoed. */
function taskNoOf(task: unknown): string | undefined {
  const taskNo = typeof task === 'object' && task !== null && 'taskNo' in task ? task.taskNo : undefined
  return taskBody.shape.taskNo.safeParse(taskNo).data
}

function attempt<Value>(make: () => Value): Value | Problem {
  try {
    return make()
  } catch (error) {
    if (error instanceof Problem) return error
    throw error
  }
}
