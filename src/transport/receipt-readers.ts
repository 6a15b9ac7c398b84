import { setMaxListeners } from 'node:events'
import { isPowerOfTen, type Logger } from '../runtime/logger.ts'
import { isMissingPackage, SetupError } from '../runtime/errors.ts'
import { transportOf, type Broker, type BrokerTransport } from './broker.ts'
import type { ReadReceipts, TakeReceipt, ReceiptMessage, ReceiptReaderDeps } from './receipts.ts'
import { textOf } from '../runtime/text-of.ts'

/** Each is loaded when a broker of its transport is named. A new one needs a file, and a line here. */
const readers: Partial<Record<BrokerTransport, () => Promise<{ readReceipts: ReadReceipts }>>> = {
  rabbitmq: () => import('./rabbitmq/receipts.ts'),
  kafka: () => import('./kafka/receipts.ts'),
  nats: () => import('./nats/receipts.ts'),
  rocketmq: () => import('./rocketmq/receipts.ts'),
  'redis-stream': () => import('./redis-stream/receipts.ts')
}

export const bringsReceipts = (transport: BrokerTransport): boolean => Object.hasOwn(readers, transport)

export interface ReceiptReadersOptions extends Omit<ReceiptReaderDeps, 'broker' | 'log'> {
  brokers: readonly Broker[]
  log: Pick<Logger, 'info' | 'warn' | 'debug'>
  /** Takes one receipt, as /callback does. Rejects on a wrong receipt, an outage or a bug; `faultOf` distinguishes them. */
  take(receipt: ReceiptMessage, from: string): Promise<unknown>
  /** The cause of a rejection of `take`. The receipt comes again, unless the fault is the sender's. */
  faultOf(err: unknown): 'sender' | 'database' | 'ours'
  signal: AbortSignal
}

/**
 * Reads the receipts of all brokers until the signal aborts; then `done` resolves. A refused receipt is logged, and never
 * comes again.
 */
export async function startReceiptReaders({
  brokers,
  signal,
  ...deps
}: ReceiptReadersOptions): Promise<{ done: Promise<unknown> }> {
  setMaxListeners(0, signal) // one for each receipt that must come again
  const loaded = await loadReaders(brokers)
  const running = loaded.map(({ broker, readReceipts }) =>
    readReceipts?.({ broker, ...deps }, takerFor(deps, broker), signal)
  )
  return { done: Promise.all(running.map(each => each ?? Promise.resolve())) }
}

/** Opens no connection. Rejects with SetupError when a package is missing. */
export async function loadReaders(
  brokers: readonly Broker[]
): Promise<{ broker: Broker; readReceipts: ReadReceipts | undefined }[]> {
  return await Promise.all(
    brokers.map(async broker => {
      try {
        return { broker, readReceipts: (await readers[transportOf(broker.scheme)]?.())?.readReceipts }
      } catch (err) {
        if (!isMissingPackage(err)) throw err
        throw new SetupError(
          `RECEIPTS_FROM: ${broker.name} needs the package of its transport, see docs/transports.md`
        )
      }
    })
  )
}

/** Takes a receipt. It leaves the queue depending on the answer that /callback would give. */
export function takerFor(
  { take, faultOf, log }: Pick<ReceiptReadersOptions, 'take' | 'faultOf' | 'log'>,
  broker: Pick<Broker, 'scheme' | 'name'>
): TakeReceipt {
  const failures = new WeakMap<ReceiptMessage, number>()
  return async receipt => {
    try {
      await take(receipt, `${broker.scheme}://${broker.name}`)
      return 'done'
    } catch (err) {
      const fault = faultOf(err)
      // An outage is logged elsewhere, once.
      if (fault === 'database') return 'later'
      if (fault === 'ours') {
        const tries = (failures.get(receipt) ?? 0) + 1
        failures.set(receipt, tries)
        // It is tried again every second, for days.
        const level = isPowerOfTen(tries) ? 'warn' : 'debug'
        log[level]({ err, broker: broker.name, tries }, 'receipt.failed')
        return 'later'
      }
      log.warn({ broker: broker.name, reason: textOf(err) }, 'receipt.refused')
      return 'done'
    }
  }
}
