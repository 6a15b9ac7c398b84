// The public API for receivers: import { receiver, fromPg } from 'ackbox/consumer'
// It loads no library, and no other folder than the adapters.
export { receiver, type OnceOptions, type Receiver, type ReceiverOptions } from './receiver.ts'
export type { Once, Work } from './answer.ts'
export type { FastifyRoute, Frameworks } from './frameworks.ts'
export type { ReceivedTask } from './message.ts'
export type { Message } from '../adapter/message.ts'
export { InvalidSignature, Refuse, Retry, TooOld } from './answer.ts'
export { ReceiptRefused } from './receipts.ts'
export { fromMysql2, fromPg } from '../adapter/drivers.ts'
export { fromDrizzle, fromKnex, fromKysely, fromPrisma, fromTypeorm } from '../adapter/builders.ts'
export {
  AdapterError,
  type Database,
  type Dialect,
  type PostgresJs,
  type Row,
  type Tx,
  type Value
} from '../adapter/transaction.ts'
export { ddl } from './ddl.ts'
