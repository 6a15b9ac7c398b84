import type { Outcome } from '../../domain/types.ts'
import { type Broker, chosen } from '../broker.ts'
import { deadlines, type Due } from '../deadlines.ts'
import { Failure } from '../egress/guard.ts'
import { ended } from '../failure.ts'
import { rocketmqCluster, type RocketmqCluster, type Journey } from './cluster.ts'
import { messageOf, type RocketmqRequest } from './message.ts'
import { failureOfCall } from './status.ts'
import type { SendContext, Transport, TransportDeps } from '../types.ts'

export type { RocketmqRequest } from './message.ts'

/** RocketMQ 5 by the gRPC protocol of its proxy. Delivered: the broker's `SEND_OK`. */
export function rocketmqTransport(deps: TransportDeps): Transport<RocketmqRequest> {
  const clock = deadlines<Sending>()
  const clusters = new Map<Broker, RocketmqCluster>()
  let isClosed = false

  function clusterOf(broker: Broker): RocketmqCluster {
    const known = clusters.get(broker)
    if (known) return known
    const made = rocketmqCluster(deps, broker)
    clusters.set(broker, made)
    return made
  }

  return {
    name: 'rocketmq',

    send(request, context) {
      if (isClosed || context.signal.aborted) return ended('shutdown')
      if (context.timeoutMs <= 0) return ended('timeout')
      try {
        const broker = chosen(deps.brokers, 'rocketmq', request?.broker)
        const message = messageOf(request, context, broker.path)
        if (typeof message === 'string') return ended(`bad_request: ${message}`)
        return new Promise(resolve => {
          const sending = new Sending(context, outcome => {
            clock.delete(sending)
            resolve(outcome)
          })
          clock.add(sending)
          clusterOf(broker)
            .publish(message, sending)
            .then(
              outcome => sending.end(outcome),
              (error: unknown) => sending.end(failureOfCall(error))
            )
        })
      } catch (error) {
        if (error instanceof Failure) return Promise.resolve(error.outcome)
        throw error
      }
    },

    async close() {
      isClosed = true
      for (const sending of clock.all()) sending.cut('shutdown')
      for (const each of clusters.values()) each.close()
      clusters.clear()
    }
  }
}

/** One send on its way; it ends once, by its answer, its deadline or a shutdown. */
class Sending implements Due, Journey {
  readonly startedAt = performance.now()
  readonly due: number
  index = -1
  readonly signal: AbortSignal
  onEnd: ((isLate: boolean) => void) | undefined
  #tell: ((outcome: Outcome) => void) | undefined

  constructor(context: SendContext, tell: (outcome: Outcome) => void) {
    this.due = this.startedAt + context.timeoutMs
    this.signal = context.signal
    this.#tell = tell
  }

  get ended(): boolean {
    return this.#tell === undefined
  }

  end(outcome: Outcome): void {
    const tell = this.#tell
    this.#tell = undefined
    tell?.(outcome)
  }

  expire(): void {
    this.cut(this.signal.aborted ? 'shutdown' : 'timeout')
  }

  cut(reason: 'shutdown' | 'timeout'): void {
    this.end({ kind: 'failed', reason })
    this.onEnd?.(reason === 'timeout')
  }
}
