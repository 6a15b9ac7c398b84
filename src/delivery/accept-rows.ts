import { refusesItem } from '../db/batch.ts'
import { codesOfOthers } from '../db/cluster.ts'
import { rejectFromOutbox, removeFromOutbox, type OutboxRow } from '../db/outbox.ts'
import type { Sql } from '../db/pool.ts'
import { findContents, insertFromOutbox, type InsertResult, type NewTask } from '../db/tasks.ts'
import { isSameContent, type Content } from '../domain/content.ts'
import { uuidv7 } from '../domain/ids.ts'
import { reasonOf, type ProblemBody } from '../runtime/errors.ts'
import { failpoint } from '../runtime/failpoint.ts'
import { inHalves } from '../runtime/halves.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Metrics } from '../runtime/metrics.ts'
import { newTaskOf, type AcceptDeps, type AcceptResult, type TaskRequest } from './accept.ts'
import { writeTasks } from './write-tasks.ts'

/** The reason why a row does not become a task. */
type Refusal = Exclude<AcceptResult, { kind: 'created' | 'same' }>

/** Checks a row as a POST is checked. */
export interface OutboxReader {
  /** `ifNew` is a refusal for a new task only: an accepted task stays accepted. */
  read(row: OutboxRow): { taskRequest: TaskRequest; ifNew: ProblemBody | null } | { problem: ProblemBody }
  /** The problem in the response to such a POST. */
  problemOf(refusal: Refusal, taskRequest: TaskRequest): ProblemBody
  /** The problem of a row that PostgreSQL refuses to store as a task. */
  unwritable: ProblemBody
  /** The problem of a row that cannot be read. */
  unreadable(reason: string): ProblemBody
}

export interface AcceptRowsDeps {
  sql: Sql
  /** The name of this process. */
  node: string
  accepting: AcceptDeps
  reader: OutboxReader
  metrics: Pick<Metrics, 'outboxRows'>
  log: Logger
}

export interface AcceptRowsResult {
  /** Rows without a final answer: they are still in the outbox. */
  left: number
  /** Rows that another process finished first. */
  lost: number
}

/** A row that may become a task. */
interface Ready {
  row: OutboxRow
  taskRequest: TaskRequest
  task: NewTask
}
interface Refused {
  row: Pick<OutboxRow, 'id' | 'taskNo' | 'messageCode' | 'createdBy'>
  problem: ProblemBody
}
type Checked = Ready | (Refused & { row: OutboxRow })

/**
 * Finishes these rows in their order. A row is stored and removed by one statement, or dropped because its task exists with the same
 * content, or moved to the rejected rows. After a crash the next look finds the rest. A process that reads the same rows at the same time
 * finds their tasks stored. Rejects with the error of PostgreSQL if it does not answer. `elsewhere`: rows that stay for another process.
 */
export async function acceptRows(
  deps: AcceptRowsDeps,
  rows: readonly OutboxRow[]
): Promise<AcceptRowsResult & { elsewhere: readonly OutboxRow[] }> {
  const read = rows.map(row => ({ row, ...deps.reader.read(row) }))
  const late = read.flatMap(one => ('taskRequest' in one && one.ifNew ? [one.taskRequest.taskNo] : []))
  const known = late.length > 0 ? await findContents(deps.sql, late) : new Map<string, Content>()
  const all = read.map(one => {
    if ('problem' in one) return one
    const { row, taskRequest, ifNew } = one
    return ifNew && !known.has(taskRequest.taskNo)
      ? { row, problem: ifNew }
      : checkedRow(deps, row, taskRequest)
  })
  const elsewhere = all.some(isUnknown) ? await findElsewhere(deps, all) : noRows
  const checked = elsewhere.size > 0 ? all.filter(one => !elsewhere.has(one.row)) : all
  // Before the later rows are stored: a row without a final answer stops its key.
  const refused = checked.filter(one => 'problem' in one)
  const lost = await reject(deps, refused)
  const stored = await storeAll(
    deps,
    checked.filter(one => 'task' in one)
  )
  return { left: stored.left, lost: stored.lost + lost, elsewhere: [...elsewhere] }
}

const noRows: ReadonlySet<OutboxRow> = new Set()

const isUnknown = (one: Checked): boolean => 'problem' in one && one.problem.code === 'UNKNOWN_CODE'

/** The rows that another live dispatcher has the handler of, and the later rows of their keys. */
async function findElsewhere(
  { sql, node, accepting }: AcceptRowsDeps,
  all: readonly Checked[]
): Promise<ReadonlySet<OutboxRow>> {
  const codes = await codesOfOthers(sql, node, 'dispatcher')
  const mayBeMore = accepting.cluster.isRejoining()
  const found = new Set<OutboxRow>()
  const keys = new Set<string>()
  for (const one of all) {
    const { messageCode, orderingKey } = one.row
    // A code with a handler here is unknown if one of its steps has none: that would be so elsewhere too.
    const isElsewhere =
      isUnknown(one) &&
      messageCode !== null &&
      !accepting.handlers.has(messageCode) &&
      (mayBeMore || codes.has(messageCode))
    if (!isElsewhere && (orderingKey === null || !keys.has(orderingKey))) continue
    found.add(one.row)
    if (orderingKey !== null) keys.add(orderingKey)
  }
  return found
}

function checkedRow(deps: AcceptRowsDeps, row: OutboxRow, taskRequest: TaskRequest): Checked {
  // Rows are stored as plain tasks: nothing releases one later.
  const [unsupported, pointer] = taskRequest.after
    ? ['a task that waits for others', '/after']
    : taskRequest.prepared
      ? ['a half message', '/prepared']
      : []
  if (unsupported && pointer) {
    const refusal = {
      kind: 'invalid' as const,
      detail: `${unsupported} cannot be enqueued: POST it`,
      pointer,
      errors: []
    }
    return { row, problem: deps.reader.problemOf(refusal, taskRequest) }
  }
  const task = newTaskOf(deps.accepting, taskRequest)
  return 'kind' in task
    ? { row, problem: deps.reader.problemOf(task, taskRequest) }
    : { row, taskRequest, task }
}

async function storeAll(deps: AcceptRowsDeps, ready: readonly Ready[]): Promise<AcceptRowsResult> {
  // The first row of a taskNo is written. The others are compared with the stored task.
  const firsts = new Map<string, Ready>()
  for (const one of ready) if (!firsts.has(one.task.taskNo)) firsts.set(one.task.taskNo, one)
  const written = await store(deps, [...firsts.values()])
  if (ready.length > 0) failpoint('outbox.after_store')
  const same: OutboxRow[] = []
  const others: Refused[] = []
  let left = 0
  for (const one of ready) {
    const { row, taskRequest, task } = one
    const first = firsts.get(task.taskNo) ?? one
    const result = written.get(first)
    if (first === one && (!result || result.kind === 'created')) continue
    if (result?.kind === 'biz_taken') {
      if (first === one)
        others.push({
          row,
          problem: deps.reader.problemOf({ kind: 'biz_conflict', by: result.by }, taskRequest)
        })
      else left++
      continue
    }
    const stored = result?.kind === 'created' ? first.task : result?.kind === 'known' && result.content
    // Retention removed it at this moment, or the first row of this taskNo was refused: the next look decides.
    if (!stored) left++
    else if (isSameContent(stored, task)) same.push(row)
    else others.push({ row, problem: deps.reader.problemOf({ kind: 'conflict' }, taskRequest) })
  }
  const lost = (await drop(deps, same)) + (await reject(deps, others))
  return { left, lost }
}

/**
 * A row without an entry was refused by PostgreSQL, and is rejected. The halves are stored one after the other: no row of a
 * key is stored before the earlier row of that key has its answer.
 */
async function store(deps: AcceptRowsDeps, ready: readonly Ready[]): Promise<Map<Ready, InsertResult>> {
  const written = await inHalves(ready, {
    work: part => storeAtOnce(deps, part),
    mayBeOfOne: refusesItem,
    async setAside({ row, task }, err) {
      deps.log.error({ err, taskNo: task.taskNo, row: row.id }, 'outbox.unwritable')
      await reject(deps, [{ row, problem: deps.reader.unwritable }])
    }
  })
  return new Map(written)
}

async function storeAtOnce(deps: AcceptRowsDeps, ready: readonly Ready[]): Promise<[Ready, InsertResult][]> {
  const tasks = ready.map(one => one.task)
  const rowIds = ready.map(one => one.row.id)
  const results = await writeTasks(deps.accepting, tasks, (sql, all) => insertFromOutbox(sql, all, rowIds))
  let stored = 0
  for (const [index, task] of tasks.entries()) {
    const result = results[index]
    if (result?.kind !== 'created') continue
    deps.accepting.metrics.accepted(task.messageCode, 'created', result.at)
    stored++
  }
  deps.metrics.outboxRows('stored', stored)
  return results.flatMap((result, index) => (ready[index] ? [[ready[index], result]] : []))
}

/** Rejects a row that cannot be read. Rejects with the error of PostgreSQL if the row cannot be moved either. */
export async function rejectUnreadable(deps: AcceptRowsDeps, id: number, err: unknown): Promise<void> {
  const problem = deps.reader.unreadable(reasonOf(err))
  await reject(deps, [{ row: { id, taskNo: null, messageCode: null, createdBy: '' }, problem }])
}

/** Returns how many of these rows another process had dropped. */
async function drop({ sql, metrics }: AcceptRowsDeps, rows: readonly OutboxRow[]): Promise<number> {
  if (rows.length === 0) return 0
  const dropped = await removeFromOutbox(
    sql,
    rows.map(row => row.id)
  )
  metrics.outboxRows('same', dropped)
  return rows.length - dropped
}

/** Returns how many of these rows another process had finished. */
async function reject(deps: AcceptRowsDeps, refused: readonly Refused[]): Promise<number> {
  const { sql, metrics, log } = deps
  if (refused.length === 0) return 0
  failpoint('outbox.before_reject')
  const rejections = refused.map(({ row, problem }) => ({ rowId: row.id, id: uuidv7(), problem }))
  let moved: number
  try {
    moved = await rejectFromOutbox(sql, rejections)
  } catch (err) {
    return await rejectApart(deps, refused, err)
  }
  failpoint('outbox.after_reject')
  metrics.outboxRows('rejected', moved)
  for (const [index, { row, problem }] of refused.entries()) {
    const { taskNo, messageCode, createdBy } = row
    log.warn(
      {
        id: rejections[index]?.id,
        row: row.id,
        taskNo,
        messageCode,
        createdBy,
        code: problem.code,
        detail: problem.detail
      },
      'outbox.rejected'
    )
  }
  return refused.length - moved
}

/** One row, or what its problem quotes of it, may be what PostgreSQL refuses. That row gets a problem without a quotation. */
async function rejectApart(deps: AcceptRowsDeps, refused: readonly Refused[], err: unknown): Promise<number> {
  const { unwritable } = deps.reader
  const [first, second] = refused
  if (!refusesItem(err) || !first) throw err
  if (!second) {
    if (first.problem === unwritable) throw err
    deps.log.error({ err, taskNo: first.row.taskNo, row: first.row.id }, 'outbox.unwritable')
    return await reject(deps, [{ row: first.row, problem: unwritable }])
  }
  let lost = 0
  for (const one of refused) lost += await reject(deps, [one])
  return lost
}
