// The barrier orders the transaction of a half message and the check of it. Both insert the same key, and the database accepts only the
// first. So a check that answered ROLLED_BACK stays true: a later transaction finds the row and fails.
import { checkTaskNo, ProducerError } from './task.ts'
import {
  autocommitted,
  hasAutocommit,
  hasCode,
  requireTransaction,
  isInside,
  removeByKey,
  txOf,
  withTables,
  type Database,
  type PostgresJs,
  type Tx
} from '../adapter/transaction.ts'

export type CheckState = 'COMMITTED' | 'ROLLED_BACK' | 'UNKNOWN'
export interface CheckAnswer {
  state: CheckState
}

/** The members that the barrier reads from the body of Ackbox's request to the `checkBack` of a handler. */
export interface CheckRequest {
  taskNo: string
  /** The time at which Ackbox accepted the half message, RFC 3339. */
  preparedAt: string
}

const dayMs = 86_400_000
/** Rows of the barrier can be deleted at this age. */
const keptDays = 30
/** The row of an older half message may be deleted. One day less than `keptDays`, because clocks differ. */
const horizonMs = (keptDays - 1) * dayMs

/** The key is already in the barrier. The transaction must not commit. */
export class AlreadyDecided extends ProducerError {
  override name = 'AlreadyDecided'
}

/**
 * The first statement of a half message's transaction. From here on, a check waits for the end of the transaction. Throws AlreadyDecided if
 * a check was answered ROLLED_BACK, or a transaction with this taskNo has committed. The transaction must then fail too.
 */
export async function prepared(tx: Tx | PostgresJs, taskNo: string): Promise<void> {
  checkTaskNo(taskNo)
  const at = txOf(tx)
  await withTables(at, () => requireTransaction(at, 'ackbox_barrier in row exclusive mode'))
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
 * Throws unless the key is still there. If the work swallowed an error that ended its transaction on the server, COMMIT reports no error.
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
 * Answers Ackbox's check, with a pool or a connection outside a transaction, on the primary. Check the signature of the request first, and
 * answer with 200 and this result as JSON. UNKNOWN: the transaction still runs, or is so old that its row may be deleted.
 */
export async function answerCheck(
  db: Tx | PostgresJs,
  { taskNo, preparedAt }: CheckRequest
): Promise<CheckAnswer> {
  checkTaskNo(taskNo)
  const since = Date.parse(preparedAt)
  if (Number.isNaN(since)) throw new ProducerError('preparedAt in the request of a check is not a time.')
  const at = txOf(db)
  const run = at.dialect === 'mysql' && (await isInside(at)) ? await withoutAutocommit(at) : atOnce(at)
  try {
    if (since > Date.now() - horizonMs) await withTables(at, () => run(tx => rollBackUnlessThere(tx, taskNo)))
    // A separate statement: the first one cannot see a commit that happened during its wait.
    const [row] = await run(tx => tx.query(tx.dialect === 'postgres' ? decidedInPostgres : decided, [taskNo]))
    if (row?.['own'] === true) throw new ProducerError(within)
    return { state: (row?.['state'] as CheckState | undefined) ?? 'UNKNOWN' }
  } catch (err) {
    // The transaction holds the lock, there is a deadlock with it, or the snapshot is older than its commit.
    if (err instanceof Waited || hasCode(err, busy)) return { state: 'UNKNOWN' }
    throw err
  }
}

type Run = <Result>(work: (tx: Tx) => Promise<Result>) => Promise<Result>

const atOnce =
  (at: Tx): Run =>
  work =>
    work(at)

/** With autocommit off, any statement is in a transaction: each part gets one of its own. */
async function withoutAutocommit(at: Tx): Promise<Run> {
  if (at.refusal === undefined || !isDatabase(at) || (await hasAutocommit(at)))
    throw new ProducerError(within)
  return work => at.begin(native => work(at.within(native)))
}

const isDatabase = (at: Tx): at is Database<unknown> => 'begin' in at

const busy = [
  '55P03',
  '40P01',
  '40001',
  1020,
  1205,
  1213,
  'ER_CHECKREAD',
  'ER_LOCK_WAIT_TIMEOUT',
  'ER_LOCK_DEADLOCK'
]
const within =
  'answerCheck needs a pool, or a connection outside a transaction, with autocommit on: its answer must be committed before it is given.'
const decided = 'select state from ackbox_barrier where task_no = ?'
/** `own`: the statement runs inside a transaction. A SELECT outside one has no transaction id. */
const decidedInPostgres =
  'select state, txid_current_if_assigned() is not null as own from ackbox_barrier where task_no = $1::text'

const waitMs = 2_000
/** The limit if the server does not end the wait. Ackbox waits 3 s for the answer. */
const longestWaitMs = 2_500

async function rollBackUnlessThere(at: Tx, taskNo: string): Promise<void> {
  if (at.dialect === 'postgres') {
    // One statement, so that the lock timeout and the insert use the same connection of the pool.
    await at.query(
      `insert into ackbox_barrier (task_no, state)
       select $1::text, 'ROLLED_BACK' from (select set_config('lock_timeout', '${waitMs}', true) as s offset 0) l where s is not null
       on conflict do nothing`,
      [taskNo]
    )
    return
  }
  // Only MariaDB executes the comment. For MySQL, the wait ends here. The statement may still succeed later, which is also correct.
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

/** Deletes the rows of the barrier that are older than 30 days. No check needs them any more. */
export async function pruneBarrier(db: Tx | PostgresJs): Promise<void> {
  const at = txOf(db)
  if (at.dialect === 'postgres') {
    await at.query(`delete from ackbox_barrier where created_at < now() - interval '${keptDays} days'`, [])
    return
  }
  const old = `created_at < now() - interval ${keptDays} day`
  await removeByKey(isDatabase(at) ? autocommitted(at) : at, [], {
    find: `select task_no as found from ackbox_barrier force index (ackbox_barrier_created_idx) where ${old} limit 1000`,
    remove: `delete b from json_table(?, '$[*]' columns (id varchar(128) path '$')) old
             straight_join ackbox_barrier b force index (primary)
               on b.task_no = convert(old.id using utf8mb4) collate utf8mb4_bin
             where b.${old}`
  })
}
