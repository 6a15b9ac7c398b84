// The reader of receipts, as in the worker: it reads from a hostile broker for a while, and then stops.
import { setTimeout as sleep } from 'node:timers/promises'
import type { Subject } from '../child.ts'
import type { Played } from '../conversation.ts'
import type { ReadReceipts } from '../../src/transport/receipts.ts'
import { parseBroker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'

/** Loaded at the start, so that the libraries do not count in the measurements. */
const readers: Record<string, () => Promise<{ readReceipts: ReadReceipts }>> = {
  amqp: () => import('../../src/transport/rabbitmq/receipts.ts'),
  nats: () => import('../../src/transport/nats/receipts.ts'),
  rocketmq: () => import('../../src/transport/rocketmq/receipts.ts')
}
const readMs = 300
const stopMs = 5_000

export const subject: Subject<{ url: string }, Played> = async ({ url }) => {
  const load = readers[url.slice(0, url.indexOf(':'))]
  if (!load) throw new Error(`no reader of receipts for ${url}`)
  const { readReceipts } = await load()
  const open = guard({ allow: undefined, embedded: true, deny: [] })
  return {
    async play({ port, patience = 1 }, within) {
      const broker = parseBroker('fuzzed', url.replace('{port}', String(port)))
      if (typeof broker === 'string') throw new Error(`the broker's url ${broker}`)
      const stop = new AbortController()
      const warnings: string[] = []
      let receipts = 0
      const log = { info: () => {}, warn: (_: object, message: string) => void warnings.push(message) }
      const handle = async () => {
        receipts++
        return 'done' as const
      }
      const reading = readReceipts({ broker, guard: open, log }, handle, stop.signal)
      await Promise.race([reading, sleep(readMs * patience)])
      stop.abort()
      await within('the end of reading', stopMs, reading)
      return { receipts, warnings }
    }
  }
}
