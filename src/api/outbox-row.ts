import type { OutboxRow } from '../db/outbox.ts'
import { present } from '../domain/optional-members.ts'
import type { OutboxReader } from '../delivery/accept-rows.ts'
import { refusalBy } from '../delivery/handler-refusal.ts'
import type { LoadedHandler } from '../handler/loaded.ts'
import { JsonProblem, readJson, type JsonRead } from '../json/reader.ts'
import { problemBody, Problem } from '../runtime/errors.ts'
import type { ApiLog } from './deps.ts'
import { acceptedTask, bodyOf, problemOf } from './problem.ts'
import { maxBodyBytes, maxExtend, taskBody } from './requests.ts'
import { readTaskRequest, traceparentOf, type CheckedTask, type RequestContext } from './task-request.ts'

/** Reads rows of the outbox as if they had been posted: with the same reader, schema and rules. */
export function outboxReader(handlers: ReadonlyMap<string, LoadedHandler>, log: ApiLog): OutboxReader {
  const refusal = refusalBy(handlers, log)
  return {
    read(row) {
      try {
        const { taskRequest, ifNew } = checkedRow(row, { handlers, refusal })
        return { taskRequest, ifNew: ifNew && bodyOf(ifNew) }
      } catch (err) {
        return { problem: bodyOf(problemOf(err)) }
      }
    },
    problemOf(refusal, { messageCode }) {
      try {
        acceptedTask(refusal, messageCode, [...handlers.keys()])
      } catch (err) {
        return bodyOf(problemOf(err))
      }
      throw new Error('a refusal is no task')
    },
    unwritable: problemBody('INTERNAL', 'PostgreSQL refused the row; the log has the error'),
    unreadable: reason => problemBody('INVALID', `The row cannot be read: ${reason}`)
  }
}

function checkedRow(row: OutboxRow, known: Pick<RequestContext, 'handlers' | 'refusal'>): CheckedTask {
  if (row.messageBody === null && row.bodyBytes > 0) {
    throw new Problem('BODY_TOO_LARGE', `${row.bodyBytes} bytes of at most ${maxBodyBytes}`, {
      pointer: '/messageBody'
    })
  }
  if (row.extend === null && row.extendBytes !== null) {
    throw new Problem('INVALID', `must be at most ${maxExtend.toLocaleString('en')} characters of JSON`, {
      pointer: '/extend'
    })
  }
  if (row.members === null && row.membersBytes !== null) {
    throw new Problem('TOO_LARGE', `${row.membersBytes} bytes of other members`)
  }
  const parts = Object.entries({ extend: row.extend, members: row.members, messageBody: row.messageBody })
    .filter(([, text]) => text !== null)
    .map(([name, text]) => ({ name: `"${name}":`, text: String(text) }))
  const read = readParts(parts)
  const { members, ...rest } = Object(read.value) as Record<string, unknown>
  // The texts were put between braces: a text that continues after its value must not add members.
  if (Object.keys(Object(read.value) as object).length !== parts.length)
    throw new Problem('NOT_JSON', 'more than one JSON value', { pointer: '/messageBody' })
  const envelope = { ...columns(row), ...Object(members), ...rest }
  const context = {
    caller: { name: row.createdBy, messageCodes: null, scopes: [] },
    ...known,
    traceparent: traceparentOf(row.traceparent ?? undefined),
    // A task that was in time at its insert is not late because it waited for us.
    now: row.createdAt
  }
  const { taskRequest, ifNew } = readTaskRequest({ value: envelope, read, index: 0, pointer: '' }, context)
  const { delayMs } = taskRequest
  return {
    taskRequest:
      delayMs === null
        ? taskRequest
        : { ...taskRequest, startAt: new Date(row.createdAt.getTime() + delayMs), delayMs: null },
    ifNew
  }
}

/** The offset of an error counts from the start of its own text: the writer of the row does not see the text around it. */
function readParts(parts: readonly { name: string; text: string }[]): JsonRead {
  try {
    return readJson(Buffer.from(`{${parts.map(({ name, text }) => name + text).join()}}`), 'task')
  } catch (err) {
    if (!(err instanceof JsonProblem)) throw err
    let start = 1
    for (const { name, text } of parts) {
      const offset = err.offset - start - name.length
      const length = Buffer.byteLength(text)
      if (offset < length) throw err.at(Math.max(0, offset))
      if (offset === length) throw endProblem(text)?.at(offset, err.pointer) ?? err.at(offset)
      start += name.length + length + 1
    }
    throw err.at(Buffer.byteLength(parts.at(-1)?.text ?? ''))
  }
}

/** The problem of a text that ends too early, as its writer sees it. Undefined: it is whole. */
function endProblem(text: string): JsonProblem | undefined {
  try {
    readJson(Buffer.from(text), 'plain')
    return undefined
  } catch (err) {
    if (err instanceof JsonProblem) return err
    throw err
  }
}

/** The members that have columns, if a task may have them. Null and an empty sceneType mean: not set. */
function columns(row: OutboxRow): object {
  const members = {
    ...present('taskNo', row.taskNo),
    ...present('messageCode', row.messageCode),
    ...present('sceneType', row.sceneType === '' ? null : row.sceneType),
    ...present('deliverStartTime', row.deliverStartTime),
    ...present('delay', row.delayMs),
    ...present('deliverBefore', row.deliverBefore),
    ...present('orderingKey', row.orderingKey),
    ...present('needCallback', row.needCallback),
    ...present('retryTimes', row.retryTimes),
    ...present('bizType', row.bizType),
    ...present('bizKey', row.bizKey)
  }
  return Object.fromEntries(Object.entries(members).filter(([name]) => name in taskBody.shape))
}
