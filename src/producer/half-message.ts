// Prepare, work, commit: for a producer that does not share its database with Ackbox and runs no relay.
import { randomUUID } from 'node:crypto'
import { databaseOf, type NativeOf } from '../adapter/drivers.ts'
import type { Database, PostgresJs, Tx } from '../adapter/transaction.ts'
import { AlreadyDecided, answerCheck, prepared, stillPrepared } from './barrier.ts'
import { AckboxError, isTransient } from './call.ts'
import type { TaskAnswer } from './answers.ts'
import type { Client } from './client.ts'
import { ProducerError, type Task } from './task.ts'

export interface HalfMessageOptions {
  /** The time after which Ackbox runs the check by itself, like '35s'. */
  checkAfter?: string | undefined
  /** Aborts only the first step. After it, all steps run to their end. */
  signal?: AbortSignal | undefined
}

export interface HalfMessageDone<Result> {
  taskNo: string
  /** What the work returned. */
  result: Result
  /** The answer of Ackbox to the commit. Undefined: Ackbox did not get it, and its check will find it out. */
  task: TaskAnswer | undefined
}

/** It is unknown here whether the transaction committed. Ackbox's check decides it: nothing is lost, and nothing is sent on a guess. */
export class UnclearCommit extends ProducerError {
  override name = 'UnclearCommit'
}

/**
 * The transaction has committed, so the work must not be done again, but Ackbox refused to commit the message. `cause` is the refusal: an
 * AckboxError with its code, like TASK_ROLLED_BACK if somebody has rolled the message back meanwhile.
 */
export class CommitRefused extends ProducerError {
  override name = 'CommitRefused'
}

/**
 * Posts the task as a half message, runs `work` in a transaction that begins with the barrier, and commits the message. If the work
 * throws, its transaction and the message are rolled back, and the same error is thrown. If the database's answer to the commit is lost,
 * Ackbox's check decides, and it is requested at once.
 */
export async function halfMessage<Db extends Database<unknown> | PostgresJs, Result>(
  ackbox: Client,
  db: Db,
  task: Task,
  work: (tx: NativeOf<Db>) => Promise<Result>,
  { checkAfter, signal }: HalfMessageOptions = {}
): Promise<HalfMessageDone<Result>> {
  const at = databaseOf(db)
  // Before the first step: a half message that is refused afterwards would be left for the check.
  await at.requireOutside?.()
  const taskNo = task.taskNo ?? randomUUID()
  const half = await ackbox.prepare({ ...task, taskNo }, { checkAfter, signal })
  if (half.status !== 'PREPARED')
    throw new AlreadyDecided(`The half message ${taskNo} is ${half.status} already.`)

  let worked: { result: Result } | undefined
  try {
    await at.begin(async native => {
      const tx = at.within(native)
      await prepared(tx, taskNo)
      const result = await work(native)
      await stillPrepared(tx, taskNo)
      worked = { result }
    })
  } catch (err) {
    const done = worked
    if (done === undefined && !(err instanceof AlreadyDecided)) {
      await rollBack(ackbox, at, half)
      throw err
    }
    const checked = await requestCheck(ackbox, taskNo)
    if (done === undefined || checked?.status === 'CANCELLED') throw err
    if (checked === undefined || checked.status === 'PREPARED')
      throw new UnclearCommit(
        `It is not known yet whether the transaction of the half message ${taskNo} committed: Ackbox repeats its check until it is known.`,
        { cause: err }
      )
    return { taskNo, ...done, task: checked }
  }
  const { result } = worked as unknown as { result: Result }
  return { taskNo, result, task: await commit(ackbox, taskNo) }
}

/**
 * Another transaction with the same taskNo may still commit, so the message is rolled back only if the barrier shows that none can. If the
 * barrier gives no answer, Ackbox's check decides later.
 */
async function rollBack(ackbox: Client, db: Tx, { taskNo, createdAt }: TaskAnswer): Promise<void> {
  try {
    const { state } = await answerCheck(db, { taskNo, preparedAt: createdAt })
    if (state === 'ROLLED_BACK') await ackbox.rollback(taskNo)
  } catch {}
}

/**
 * The work is committed. So it is no error if Ackbox cannot be reached, or a proxy answers in its place: the check finds the commit. A
 * refusal of Ackbox itself is an error.
 */
async function commit(ackbox: Client, taskNo: string): Promise<TaskAnswer | undefined> {
  try {
    return await ackbox.commit(taskNo)
  } catch (err) {
    if (!(err instanceof AckboxError) || err.code === undefined || isTransient(err)) return undefined
    throw new CommitRefused(
      `The transaction of the half message ${taskNo} has committed and must not run again, but Ackbox refused to commit the message: ${err.message}`,
      { cause: err }
    )
  }
}

/** The half message after its check. Undefined if the check could not run now. */
async function requestCheck(ackbox: Client, taskNo: string): Promise<TaskAnswer | undefined> {
  try {
    return await ackbox.check(taskNo)
  } catch (err) {
    // The half message was already committed or rolled back.
    const isEnded =
      err instanceof AckboxError && ['TASK_COMMITTED', 'TASK_ROLLED_BACK'].includes(err.code ?? '')
    return isEnded ? await ackbox.read(taskNo).catch(() => undefined) : undefined
  }
}
