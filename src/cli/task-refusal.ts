// The refusal that POST /tasks would answer, for dry runs. It uses the code of the API.
import { pino } from 'pino'
import { bodyOf, problemOf, refusalProblem } from '../api/problem.ts'
import { readTaskRequest } from '../api/task-request.ts'
import { normalHash } from '../domain/content.ts'
import { refusalBy } from '../delivery/handler-refusal.ts'
import type { Registry } from '../handler/load.ts'
import { readJson } from '../json/reader.ts'
import { problemBody } from '../runtime/errors.ts'

/** The members of a problem that fit in one line. */
export interface Refusal {
  status: number
  code: string
  title?: string
  detail?: string
  pointer?: string
  errors?: { detail: string; pointer: string }[]
}

/**
 * The refusal of a new task. Undefined: the answer is 201, or 200 after a task with the same content. `contents`: the content of each
 * earlier taskNo, as a part of its hash.
 */
export function refusalOf(
  text: string,
  handlers: Registry['handlers'],
  contents = new Map<string, string>()
): Refusal | undefined {
  try {
    const read = readJson(Buffer.from(text), 'task')
    const caller = { name: 'import', messageCodes: null, scopes: [] }
    const refusal = refusalBy(handlers, silent)
    const { taskRequest, ifNew } = readTaskRequest(
      { value: read.value, read, index: 0, pointer: '' },
      {
        caller,
        handlers,
        refusal,
        traceparent: null,
        now: new Date()
      }
    )
    if (ifNew) throw ifNew
    const refused = refusal(taskRequest)
    if (refused) return bodyOf(refusalProblem(refused, taskRequest.messageCode, [...handlers.keys()], ''))
    const content = normalHash(taskRequest).slice(0, 12)
    const first = contents.get(taskRequest.taskNo)
    if (first !== undefined && first !== content)
      return problemBody('TASK_CONFLICT', 'another row has this taskNo, with other content')
    contents.set(taskRequest.taskNo, content)
    return undefined
  } catch (err) {
    return bodyOf(problemOf(err))
  }
}

const silent = pino({ level: 'silent' })
