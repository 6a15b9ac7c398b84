// Prepare, do, commit: for a producer whose database Ackbox does not share and which runs no relay.
import { randomUUID } from 'node:crypto'
import { databaseOf, type NativeOf } from '../adapter/drivers.ts'
import type { Database, PostgresJs, Tx } from '../adapter/transaction.ts'
import { AlreadyDecided, answerCheck, prepared, stillPrepared } from './barrier.ts'
import { AckboxError } from './call.ts'
import type { Client, TaskAnswer } from './client.ts'
import { ProducerError, type Task } from './task.ts'

export interface HalfMessageOptions {
  /** How long Ackbox waits before it asks the check by itself, like '35s'. */
  checkAfter?: string | undefined
  /** Ends the first step only: what was begun is brought to its end. */
  signal?: AbortSignal | undefined
}

export interface HalfMessageDone<Result> {
  taskNo: string
  /** What the work returned. */
  result: Result
  /** What Ackbox said of the commit; undefined: it could not be told, and will find out by its check. */
  task: TaskAnswer | undefined
}

/** Whether the transaction committed is not known here. Ackbox asks the check, which knows; nothing is lost and nothing sent by guess. */
export class UnclearCommit extends ProducerError {
  override name = 'UnclearCommit'
}

/**
 * Posts the task as a half message, runs `work` in a transaction that begins with the barrier, and commits the message. When the work
 * throws, its transaction and the message are rolled back, and the same error is thrown. A commit whose answer was lost is left to
 * Ackbox's check, which is asked for at once.
 */
export async function halfMessage<Db extends Database<unknown> | PostgresJs, Result>(
  ackbox: Client,
  db: Db,
  task: Task,
  work: (tx: NativeOf<Db>) => Promise<Result>,
  { checkAfter, signal }: HalfMessageOptions = {}
): Promise<HalfMessageDone<Result>> {
  const at = databaseOf(db)
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
    const told = await asked(ackbox, taskNo)
    if (done === undefined || told?.status === 'CANCELLED') throw err
    if (told === undefined || told.status === 'PREPARED')
      throw new UnclearCommit(
        `It is not known yet whether the transaction of the half message ${taskNo} committed: Ackbox repeats its check until it is known.`,
        { cause: err }
      )
    return { taskNo, ...done, task: told }
  }
  const { result } = worked as unknown as { result: Result }
  return { taskNo, result, task: await commit(ackbox, taskNo) }
}

/**
 * The same taskNo may be under way a second time, which can still commit: the message is rolled back once the barrier says that none can any
 * more. When that cannot be told, Ackbox's check will find out.
 */
async function rollBack(ackbox: Client, db: Tx, { taskNo, createdAt }: TaskAnswer): Promise<void> {
  try {
    const { state } = await answerCheck(db, { taskNo, preparedAt: createdAt })
    if (state === 'ROLLED_BACK') await ackbox.rollback(taskNo)
  } catch {}
}

/** The work is committed: that Ackbox cannot be told now is no failure of it. A refusal is, and is thrown. */
async function commit(ackbox: Client, taskNo: string): Promise<TaskAnswer | undefined> {
  try {
    return await ackbox.commit(taskNo)
  } catch (err) {
    if (err instanceof AckboxError && err.status !== undefined && err.status < 500 && err.status !== 429)
      throw err
    return undefined
  }
}

/** The half message after its check was asked; undefined where that could not be done now. */
async function asked(ackbox: Client, taskNo: string): Promise<TaskAnswer | undefined> {
  try {
    return await ackbox.check(taskNo)
  } catch (err) {
    // Somebody was faster.
    const isEnded =
      err instanceof AckboxError && ['TASK_COMMITTED', 'TASK_ROLLED_BACK'].includes(err.code ?? '')
    return isEnded ? await ackbox.read(taskNo).catch(() => undefined) : undefined
  }
}
