// One outbox row in the producer's own transaction: both are committed together, or neither is.
import { isDeeper, mostLevels } from './levels.ts'
import { ProducerError, written, type Task, type WrittenTask } from './task.ts'
import {
  hasCode,
  requireTransaction,
  txOf,
  withTables,
  type PostgresJs,
  type Tx,
  type Value
} from '../adapter/transaction.ts'

/**
 * Writes the task for an Ackbox in the same PostgreSQL database, with its function ackbox_api.enqueue. Returns the taskNo. Nothing is
 * delivered before the commit. A role needs `ackbox outbox grant ROLE` once.
 */
export async function enqueue(tx: Tx | PostgresJs, task: Task): Promise<string> {
  const at = txOf(tx)
  if (at.dialect !== 'postgres')
    throw new ProducerError(
      'enqueue works only in the PostgreSQL database of Ackbox: in MySQL or MariaDB, write to the outbox with outbox(tx, task), and run `ackbox relay`.'
    )
  const row = rowOf(task)
  for (const name of ['after', 'uniqueBiz'] as const)
    if (row[name] !== undefined)
      throw new ProducerError(
        `enqueue does not support ${name}: POST the task, or write it to the outbox with outbox(tx, task).`
      )
  // Every role can read this table, and no other statement waits for this lock.
  await requireTransaction(at, 'pg_catalog.pg_language in access share mode')
  const given = columns(row).filter(([, , value]) => value !== null)
  const list = given.map(([name, type], index) => {
    const text = `$${index + 1}::text`
    if (name === 'delay_ms') return `delay => ${text}::float8 * interval '1 millisecond'`
    return `${name} => ${type === 'text' ? text : `${text}::${type}`}`
  })
  try {
    await at.query(
      `select ackbox_api.enqueue(${list.join(', ')})`,
      given.map(([, , value]) => value)
    )
  } catch (err) {
    // invalid_schema_name, undefined_function
    if (!hasCode(err, ['3F000', '42883'])) throw err
    const names = given.map(([name]) => name).join(', ')
    throw new ProducerError(
      `This database has no function ackbox_api.enqueue with ${names}: either Ackbox is in another one, or its tables are of an older version.`,
      { cause: err }
    )
  }
  return row.taskNo
}

/** Writes the task into `ackbox_outbox` of the producer's own PostgreSQL, MySQL or MariaDB, for `ackbox relay`. Returns the taskNo. */
export async function outbox(tx: Tx | PostgresJs, task: Task): Promise<string> {
  const at = txOf(tx)
  const row = rowOf(task)
  await withTables(at, () => requireTransaction(at, 'ackbox_outbox in row exclusive mode'))
  const given = columns(row).filter(([, , value]) => value !== null)
  const isPostgres = at.dialect === 'postgres'
  const names = given.map(([name]) => (name === 'after' ? (isPostgres ? '"after"' : '`after`') : name))
  const marks = given.map(([, type], index) => {
    if (!isPostgres) return '?'
    return type === 'text' ? `$${index + 1}::text` : `$${index + 1}::text::${type}`
  })
  const values = given.map(([, type, value]) => (isPostgres ? value : forMysql(type, value)))
  const insert = `insert into ackbox_outbox (${names.join(', ')}) values (${marks.join(', ')})`
  try {
    await withTables(at, () => at.query(insert, values))
  } catch (err) {
    const isDeep = [row.messageBody, row.extend ?? ''].some(json => isDeeper(json, 31))
    if (!isDeep || !hasCode(err, ['ER_CONSTRAINT_FAILED', 4025])) throw err
    throw new ProducerError(
      'ackbox_outbox of this MariaDB takes JSON of at most 31 levels, as Ackbox 1.0 made it, and Ackbox takes 64. `npx ackbox relay --print-ddl mysql` prints the `alter table` that ends this.',
      { cause: err }
    )
  }
  return row.taskNo
}

/** The refusal of a POST goes to its caller. That of a row would come after its transaction. */
function rowOf(task: Task): WrittenTask {
  const row = written(task)
  checkLevels('messageBody', row.messageBody, mostLevels)
  // It is a part of the task, which is a level too.
  checkLevels('extend', row.extend, mostLevels - 1)
  return row
}

function checkLevels(name: string, json: string | undefined, most: number): void {
  if (json !== undefined && isDeeper(json, most))
    throw new ProducerError(`${name} must be at most ${most} levels deep.`)
}

/** Every value as text, with the type for the cast in PostgreSQL, because drivers write other types in different ways. */
function columns(row: WrittenTask): [name: string, type: string, value: Value][] {
  return [
    ['task_no', 'text', row.taskNo],
    ['message_code', 'text', row.messageCode],
    ['message_body', 'text', row.messageBody],
    ['scene_type', 'text', row.sceneType ?? null],
    ['deliver_start_time', 'timestamptz', rounded(row.deliverStartTime)],
    ['delay_ms', 'bigint', text(row.delayMs)],
    ['deliver_before', 'timestamptz', rounded(row.deliverBefore)],
    ['ordering_key', 'text', row.orderingKey ?? null],
    ['need_callback', 'boolean', text(row.needCallback)],
    ['retry_times', 'int', text(row.retryTimes)],
    ['biz_type', 'text', row.bizType ?? null],
    ['biz_key', 'text', row.bizKey ?? null],
    ['unique_biz', 'boolean', text(row.uniqueBiz)],
    ['after', 'jsonb', row.after ?? null],
    ['extend', 'jsonb', row.extend ?? null],
    ['traceparent', 'text', row.traceparent ?? null]
  ]
}

const text = (value: number | boolean | undefined): Value => (value === undefined ? null : String(value))

function forMysql(type: string, value: Value): Value {
  if (type === 'boolean') return value === 'true' ? '1' : '0'
  // Its datetime has no zone.
  if (type === 'timestamptz' && value !== null) return value.replace('T', ' ').replace('Z', '')
  return value
}

/** In UTC, rounded up to a millisecond as Ackbox does: a database would round to its own precision, and a delivery would start too early. */
function rounded(time: string | undefined): Value {
  if (time === undefined) return null
  // Date.parse reads a fraction of ten digits wrongly.
  const [fraction = ''] = /\.\d+/.exec(time) ?? []
  const ms = Date.parse(time.replace(fraction, '')) + Math.ceil(Number(`0${fraction}`) * 1_000)
  return new Date(ms).toISOString()
}
