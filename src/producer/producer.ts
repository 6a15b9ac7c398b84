// The public API for producers: import { enqueue, outbox, client } from 'ackbox/producer'
// It loads no library, and no other folder than the adapters.
export { enqueue, outbox } from './outbox.ts'
export type { BatchResult, DeliveryAnswer, TaskAnswer, TaskStatus } from './answers.ts'
export { client, type Client, type ClientOptions } from './client.ts'
export { AckboxError } from './call.ts'
export { fromMysql2, fromPg } from '../adapter/drivers.ts'
export { fromDrizzle, fromKnex, fromKysely, fromPrisma, fromTypeorm } from '../adapter/builders.ts'
export {
  AlreadyDecided,
  answerCheck,
  prepared,
  pruneBarrier,
  type CheckAnswer,
  type CheckRequest,
  type CheckState
} from './barrier.ts'
export {
  CommitRefused,
  halfMessage,
  UnclearCommit,
  type HalfMessageDone,
  type HalfMessageOptions
} from './half-message.ts'
export {
  AdapterError,
  type Database,
  type Dialect,
  type PostgresJs,
  type Row,
  type Tx,
  type Value
} from '../adapter/transaction.ts'
export type { Message } from '../adapter/message.ts'
export { verifier, type Secrets } from '../adapter/signature.ts'
export { ddl } from './ddl.ts'
export { ProducerError, type Task } from './task.ts'
