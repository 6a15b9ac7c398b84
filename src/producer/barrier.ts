// Which came first: the transaction of a half message, or the check that asked for it. Both insert the same key, and a database lets
// one of them in. So a check answered ROLLED_BACK stays true: the transaction that comes after it finds the row and fails.
import { checkTaskNo, ProducerError } from './task.ts'
import {
  hasCode,
  insist,
  isInside,
  removeByKey,
  txOf,
  withTables,
  type PostgresJs,
  type Tx
} from '../adapter/transaction.ts'

export type CheckState = 'COMMITTED' | 'ROLLED_BACK' | 'UNKNOWN'
export interface CheckAnswer {
  state: CheckState
}

/** The body of Ackbox's request to the `checkBack` of a handler, as far as the barrier reads it. */
export interface CheckRequest {
  taskNo: string
  /** When Ackbox accepted the half message; RFC 3339. */
  preparedAt: string
}

const dayMs = 86_400_000
/** Rows of the barrier may be deleted at this age. */
const keptDays = 30
/** A check of an older half message might ask for a row that was deleted: a day less, for clocks that differ. */
const horizonMs = (keptDays - 1) * dayMs

/** The key is in the barrier already. The transaction must not commit. */
export class AlreadyDecided extends ProducerError {
  override name = 'AlreadyDecided'
}

/**
 * The first statement of the transaction that a half message tells of: from here on a check waits for its end. Throws AlreadyDecided when
 * a check was answered ROLLED_BACK before, or a transaction of this taskNo has committed; the transaction must fail with it.
 */
export async function prepared(tx: Tx | PostgresJs, taskNo: string): Promise<void> {
  checkTaskNo(taskNo)
  const at = txOf(tx)
  await withTables(at, () => insist(at, 'ackbox_barrier in row exclusive mode'))
  const mark = at.dialect === 'postgres' ? '$1::text' : '?'
  try {
    const insert = `insert into ackbox_barrier (task_no, state) values (${mark}, 'COMMITTED')`
    await withTables(at, () => at.query(insert, [taskNo]))
  } catch (err) {
    if (!hasCode(err, ['23505', 'ER_DUP_ENTRY', 1062])) throw err
    throw new AlreadyDecided(
      `The half message ${taskNo} is decided: its check was answered ROLLED_BACK, or a transaction has committed it before. This transaction must not commit.`,
      { cause: err }
    )
  }
}

/**
 * Throws unless the key is still there. To a transaction that a swallowed error has ended on the server, COMMIT says no word: this does.
 */
export async function stillPrepared(tx: Tx, taskNo: string): Promise<void> {
  const mark = tx.dialect === 'postgres' ? '$1::text' : '?'
  const [row] = await tx.query(`select state from ackbox_barrier where task_no = ${mark}`, [taskNo])
  if (row?.['state'] === 'COMMITTED') return
  throw new ProducerError(
    `The transaction of the half message ${taskNo} was rolled back by the database while its work went on.`
  )
}

/**
 * Answers Ackbox's check, with a pool or a connection outside a transaction, on the primary. Check the signature of the request first; answer
 * it with 200 and this as JSON. UNKNOWN: the transaction is still under way, or so old that its row may be gone.
 */
export async function answerCheck(
  db: Tx | PostgresJs,
  { taskNo, preparedAt }: CheckRequest
): Promise<CheckAnswer> {
  checkTaskNo(taskNo)
  const since = Date.parse(preparedAt)
  if (Number.isNaN(since)) throw new ProducerError('preparedAt in the request of a check is not a time.')
  const at = txOf(db)
  if (at.dialect === 'mysql' && (await isInside(at))) throw new ProducerError(within)
  try {
    if (since > Date.now() - horizonMs) await withTables(at, () => rollBackUnlessThere(at, taskNo))
    // A statement of its own: the first one cannot see what was committed while it waited.
    const [row] =
      at.dialect === 'postgres'
        ? await at.query(decidedInPostgres, [taskNo])
        : await at.query(decided, [taskNo])
    if (row?.['own'] === true) throw new ProducerError(within)
    return { state: (row?.['state'] as CheckState | undefined) ?? 'UNKNOWN' }
  } catch (err) {
    // A lock that is held by the transaction itself, a deadlock with it, or a snapshot older than its commit.
    const busy = ['55P03', '40P01', '40001', 1205, 1213, 'ER_LOCK_WAIT_TIMEOUT', 'ER_LOCK_DEADLOCK']
    if (err instanceof Waited || hasCode(err, busy)) return { state: 'UNKNOWN' }
    throw err
  }
}

const within =
  'answerCheck needs a pool, or a connection outside a transaction: its answer must be committed before it is given.'
const decided = 'select state from ackbox_barrier where task_no = ?'
/** A SELECT by itself has no number of a transaction. */
const decidedInPostgres =
  'select state, txid_current_if_assigned() is not null as own from ackbox_barrier where task_no = $1::text'

const waitMs = 2_000
/** Where the server does not end the wait. Ackbox waits 3 s for the answer. */
const longestWaitMs = 2_500

async function rollBackUnlessThere(at: Tx, taskNo: string): Promise<void> {
  if (at.dialect === 'postgres') {
    // One statement, so that the pool cannot give the limit to one connection and the insert to another.
    await at.query(
      `insert into ackbox_barrier (task_no, state)
       select $1::text, 'ROLLED_BACK' from (select set_config('lock_timeout', '${waitMs}', true) as s offset 0) l where s is not null
       on conflict do nothing`,
      [taskNo]
    )
    return
  }
  // The comment is read by MariaDB only. For MySQL we stop to wait ourselves; the statement may still do its work, which is as right later.
  const insert = at.query(
    `/*M! set statement innodb_lock_wait_timeout = ${waitMs / 1000} for */ insert ignore into ackbox_barrier (task_no, state) values (?, 'ROLLED_BACK')`,
    [taskNo]
  )
  let timer: NodeJS.Timeout | undefined
  const waited = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Waited()), longestWaitMs)
  })
  await Promise.race([insert, waited]).finally(() => clearTimeout(timer))
}
class Waited extends Error {}

/** Deletes rows of the barrier that no check needs any more: those older than 30 days. */
export async function pruneBarrier(db: Tx | PostgresJs): Promise<void> {
  const at = txOf(db)
  if (at.dialect === 'postgres') {
    await at.query(`delete from ackbox_barrier where created_at < now() - interval '${keptDays} days'`, [])
    return
  }
  const old = `created_at < now() - interval ${keptDays} day`
  await removeByKey(at, [], {
    find: `select task_no as found from ackbox_barrier force index (ackbox_barrier_created_idx) where ${old} limit 1000`,
    remove: `delete b from json_table(?, '$[*]' columns (id varchar(128) path '$')) old
             straight_join ackbox_barrier b force index (primary)
               on b.task_no = convert(old.id using utf8mb4) collate utf8mb4_bin
             where b.${old}`
  })
}
