// One transport, as in the worker: it sends to a hostile server, and closes.
import { Finding } from '../reader.ts'
import type { Subject } from '../child.ts'
import type { Played } from '../conversation.ts'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { transports, type TransportName } from '../../src/transport/registry.ts'
import type { Outcome } from '../../src/domain/types.ts'

export interface TransportOptions {
  name: TransportName
  /** `{port}` is the server's: `kafka://127.0.0.1:{port}`, `https://127.0.0.1:{port}/hook`. */
  url: string
  /** The request of a handler; for HTTP without its url. */
  request: object
  /** Sends in one case. Two, so that the second one meets the state that the first one left. */
  sends?: number
  timeoutMs?: number
}

const closeMs = 5_000

export const subject: Subject<TransportOptions, Played> = async ({
  name,
  url,
  request,
  sends = 2,
  timeoutMs: usualMs = 300
}) => {
  const open = guard({ allow: undefined, embedded: true, deny: [] })
  const log = { info: () => {}, warn: () => {} }
  const load = async (place: string) => {
    const brokers = new Map<string, Broker>()
    if (name !== 'http') {
      const broker = parseBroker('fuzzed', place)
      if (typeof broker === 'string') throw new Error(`the broker's url ${broker}`)
      brokers.set('fuzzed', broker)
    }
    const made = (await transports({ guard: open, brokers, log }, [name]))[name]
    if (!made) throw new Error(`no transport ${name}`)
    return made
  }
  // Loads the library before any measurement.
  await (await load(url.replace('{port}', '1'))).close()

  return {
    async play({ port, patience = 1 }, within) {
      const timeoutMs = usualMs * patience
      const place = url.replace('{port}', String(port))
      const transport = await load(place)
      const outcomes: Outcome[] = []
      try {
        for (let nth = 0; nth < sends; nth++) {
          const sending = transport.send(
            { ...request, ...(name === 'http' && { url: place }) },
            {
              downstream: 'fuzzed',
              timeoutMs,
              signal: new AbortController().signal,
              raw: '{"n":1}',
              headers: () => ({ 'webhook-id': 'fuzz' })
            }
          )
          outcomes.push(await within('send', timeoutMs, sending))
        }
      } finally {
        await within('close', closeMs, transport.close())
      }
      return outcomes
    }
  }
}

/** For a reader's `judge`: any answer must give a valid outcome. */
export function judgeOutcomes(outcomes: Outcome[]): void {
  for (const outcome of outcomes) {
    const { kind } = outcome
    if (kind !== 'delivered' && kind !== 'failed' && kind !== 'refused')
      throw new Finding('wrong', `an outcome of kind ${String(kind)}`)
    if (kind !== 'delivered' && !/./.test(outcome.reason))
      throw new Finding('wrong', 'an outcome without a reason')
    // The answer is stored, so its size is bounded.
    if ('answer' in outcome && (outcome.answer?.length ?? 0) > 16_384)
      throw new Finding('wrong', `an answer of ${outcome.answer?.length} bytes`)
  }
}
