// The reader of receipts, as in the worker: it reads from a hostile broker until it has read or given up, and then stops.
import { setTimeout as sleep } from 'node:timers/promises'
import type { Subject } from '../child.ts'
import type { Played } from '../conversation.ts'
import { parseBroker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { readReceipts } from '../../src/transport/kafka/receipts.ts'

const readMs = 3_000
/** Time after the first receipt, in which it fetches again and commits. */
const afterMs = 300
const stopMs = 5_000

export const subject: Subject<{ url: string }, Played> = async ({ url }) => {
  const open = guard({ allow: undefined, embedded: true, deny: [] })
  return {
    async play({ port, patience = 1 }, within) {
      const broker = parseBroker('fuzzed', url.replace('{port}', String(port)))
      if (typeof broker === 'string') throw new Error(`the broker's url ${broker}`)
      const stop = new AbortController()
      const warnings: string[] = []
      const over = new AbortController()
      let receipts = 0
      const warn = (_: object, message: string): void => {
        warnings.push(message)
        over.abort()
      }
      const log = { info: () => {}, warn }
      const handle = async () => {
        if (receipts++ === 0) setTimeout(() => over.abort(), afterMs)
        return 'done' as const
      }
      const reading = readReceipts({ broker, guard: open, log }, handle, stop.signal)
      await Promise.race([
        reading,
        sleep(readMs * patience, undefined, { signal: over.signal }).catch(() => {})
      ])
      stop.abort()
      await within('the end of reading', stopMs, reading)
      return { receipts, warnings }
    }
  }
}
