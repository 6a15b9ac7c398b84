import { randomUUID } from 'node:crypto'
import { AdapterError } from '../adapter/transaction.ts'
import { messageOf } from '../adapter/message-of.ts'

/** A task or a half message is not valid. Nothing was written. */
export class ProducerError extends AdapterError {
  override name = 'ProducerError'
}

/** A task as producers write it. Only `messageCode` and a body are required. */
export type Task = TaskMembers &
  (
    | {
        /** Any JSON value but null. */
        messageBody: unknown
        messageBodyText?: undefined
      }
    | {
        /** JSON text, delivered without a change: for numbers that JavaScript would round, or a signed text. */
        messageBodyText: string
        messageBody?: undefined
      }
  )

interface TaskMembers {
  /** Selects the handler that delivers the task. */
  messageCode: string
  /** Your own number of the task. A repeated number is the same task. Default: a random number. */
  taskNo?: string | undefined
  sceneType?: string | undefined
  /** The earliest delivery. Text is RFC 3339. */
  deliverStartTime?: Date | string | undefined
  /** The earliest delivery, in milliseconds after the insertion of the row or the arrival of the request. */
  delay?: number | undefined
  deliverBefore?: Date | string | undefined
  orderingKey?: string | undefined
  needCallback?: boolean | undefined
  retryTimes?: number | undefined
  bizType?: string | undefined
  bizKey?: string | undefined
  uniqueBiz?: boolean | undefined
  /** taskNos of tasks that must be HANDLED first. */
  after?: readonly string[] | undefined
  /** Kept and shown with the task, never delivered. */
  extend?: object | undefined
  /** W3C trace context. A malformed one is ignored. */
  traceparent?: string | undefined
}

/** A task with its times and JSON members as text. Undefined members were not given. */
export interface WrittenTask {
  taskNo: string
  messageCode: string
  messageBody: string
  sceneType?: string | undefined
  deliverStartTime?: string | undefined
  delayMs?: number | undefined
  deliverBefore?: string | undefined
  orderingKey?: string | undefined
  needCallback?: boolean | undefined
  retryTimes?: number | undefined
  bizType?: string | undefined
  bizKey?: string | undefined
  uniqueBiz?: boolean | undefined
  after?: string | undefined
  extend?: string | undefined
  traceparent?: string | undefined
}

const members: Readonly<Record<keyof Task, true>> = {
  messageCode: true,
  messageBody: true,
  messageBodyText: true,
  taskNo: true,
  sceneType: true,
  deliverStartTime: true,
  delay: true,
  deliverBefore: true,
  orderingKey: true,
  needCallback: true,
  retryTimes: true,
  bizType: true,
  bizKey: true,
  uniqueBiz: true,
  after: true,
  extend: true,
  traceparent: true
}

const taskNoForm = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/
const codeForm = /^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$/

/**
 * Throws for input that can never become a task, while the transaction can still be rolled back. Ackbox, which has the handlers, checks
 * the rest.
 */
export function written(task: Task): WrittenTask {
  const { taskNo = randomUUID(), messageCode } = task
  checkMembers(task)
  checkTaskNo(taskNo)
  if (typeof messageCode !== 'string' || !codeForm.test(messageCode))
    throw new ProducerError(
      'messageCode must be 1 to 255 of A-Z a-z 0-9 . _ - and start with a letter or digit.'
    )
  return {
    taskNo,
    messageCode,
    messageBody: bodyText(task),
    sceneType: task.sceneType,
    deliverStartTime: time('deliverStartTime', task.deliverStartTime),
    delayMs: delay(task.delay),
    deliverBefore: time('deliverBefore', task.deliverBefore),
    orderingKey: task.orderingKey,
    needCallback: task.needCallback,
    retryTimes: task.retryTimes,
    bizType: task.bizType,
    bizKey: task.bizKey,
    uniqueBiz: task.uniqueBiz,
    after: task.after && jsonText('after', task.after),
    extend: task.extend && jsonText('extend', task.extend),
    traceparent: task.traceparent
  }
}

/**
 * If unknown members were ignored, a misspelt orderingKey would lose the order, and `prepared` would be delivered at once. A text that no
 * database holds would fail the INSERT, and with it the transaction of the user.
 */
function checkMembers(task: object): void {
  for (const [name, value] of Object.entries(task)) {
    if (value === undefined) continue
    if (Object.hasOwn(members, name)) {
      const problem =
        typeof value === 'string' && name !== 'messageBodyText' ? stringProblem(value) : undefined
      if (problem !== undefined) throw new ProducerError(`${name} has ${problem}.`)
      continue
    }
    const instead =
      name === 'prepared' || name === 'checkBack'
        ? ': prepare and halfMessage make a half message, with checkAfter as an option'
        : ''
    throw new ProducerError(`${name} is not a member of a task${instead}.`)
  }
}

export function checkTaskNo(taskNo: string): void {
  if (typeof taskNo !== 'string' || !taskNoForm.test(taskNo))
    throw new ProducerError(
      'taskNo must be 1 to 128 of A-Z a-z 0-9 . _ : - and start with a letter or digit.'
    )
}

/** The task as JSON for the API. The text of its body is unchanged. */
export function postText(task: WrittenTask, more: Readonly<Record<string, unknown>> = {}): string {
  const { messageBody, delayMs, after, extend, traceparent: _, ...plain } = task
  const members = [
    ...Object.entries({ ...plain, delay: delayMs, ...more }).map(([name, value]) => [
      name,
      JSON.stringify(value)
    ]),
    ['messageBody', messageBody],
    ['after', after],
    ['extend', extend]
  ]
  return `{${members.flatMap(([name, json]) => (json === undefined ? [] : [`"${name}":${json}`])).join(',')}}`
}

function bodyText({ messageBody, messageBodyText }: Task): string {
  if (messageBodyText !== undefined) {
    const problem = textProblem(messageBodyText)
    if (problem !== undefined) throw new ProducerError(`messageBodyText ${problem}.`)
    return messageBodyText
  }
  const text = messageBody === null ? undefined : jsonText('messageBody', messageBody)
  if (text === undefined || text === 'null')
    throw new ProducerError('messageBody must be any JSON value except null.')
  return text
}

/**
 * JSON.stringify writes {} for a Map and null for NaN, and Ackbox refuses NUL and half a surrogate pair: here each is an error that names
 * the member. Returns undefined for a function or a symbol.
 */
function jsonText(name: string, value: unknown): string | undefined {
  try {
    return JSON.stringify(value, (key: string, member: unknown) => {
      const problem = problemOf(member) ?? nameProblem(key)
      if (problem !== undefined) throw new ProducerError(`${name}${key && `, member ${key}`}: ${problem}.`)
      return member
    })
  } catch (err) {
    if (err instanceof ProducerError) throw err
    // A cycle, or an error in somebody's toJSON.
    throw new ProducerError(`${name} cannot be written as JSON: ${messageOf(err)}`, { cause: err })
  }
}

/** Why Ackbox would refuse this JSON text, and with it the whole request. Numbers are fine: they stay text. */
function textProblem(text: string): string | undefined {
  let problem: string | undefined
  let members = -1 // The whole value counts too.
  try {
    const value: unknown = JSON.parse(text, function (this: unknown, key: string, member: unknown) {
      if (!Array.isArray(this)) members++
      problem ??= nameProblem(key) ?? valueProblem(member)
      return member
    })
    if (value === null) return 'must not be null'
  } catch {
    return 'is not JSON'
  }
  if (problem !== undefined) return `is refused: ${problem}`
  const names = [...text.matchAll(stringOrName)].filter(([, colon]) => colon !== undefined)
  return names.length === members ? undefined : 'has the same member name twice in one object'
}
const stringOrName = /"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?/g

/** Half of a surrogate pair: with the flag u, a whole pair is one character. In UTF-8 it would be another character, without an error. */
const halfPair = /\p{Surrogate}/u

function stringProblem(text: string): string | undefined {
  if (text.includes('\0')) return 'NUL, which no database text can hold'
  return halfPair.test(text) ? 'half a surrogate pair' : undefined
}

function nameProblem(name: string): string | undefined {
  const problem = stringProblem(name)
  return problem && `its name has ${problem}`
}

function valueProblem(value: unknown): string | undefined {
  const problem = typeof value === 'string' ? stringProblem(value) : undefined
  return problem && `a text has ${problem}`
}

function problemOf(value: unknown): string | undefined {
  if (typeof value === 'number' && !Number.isFinite(value)) return `${value} is not a number of JSON`
  if (typeof value === 'bigint')
    return `a BigInt is not a number of JSON; write it as text, or the whole body as messageBodyText`
  if (value instanceof Map || value instanceof Set)
    return `JSON has no ${value instanceof Map ? 'Map; use Object.fromEntries' : 'Set; use an array'}`
  return valueProblem(value)
}

function time(name: string, value: Date | string | undefined): string | undefined {
  if (value === undefined) return undefined
  const date = new Date(value)
  if (Number.isNaN(date.getTime())) throw new ProducerError(`${name} is not a time.`)
  if (typeof value === 'string' && !/(?:Z|[+-]\d\d:\d\d)$/i.test(value))
    throw new ProducerError(`${name} must end with its zone, like 2026-11-20T10:00:00Z.`)
  return typeof value === 'string' ? value : date.toISOString()
}

function delay(value: number | undefined): number | undefined {
  if (value !== undefined && !(Number.isInteger(value) && value >= 0))
    throw new ProducerError('delay must be a whole number of milliseconds, 0 or more.')
  return value
}
