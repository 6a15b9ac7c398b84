import { brokerTransport } from '../sends.ts'
import { rocketmqCluster, type RocketmqCluster } from './cluster.ts'
import { messageOf, type RocketMessage, type RocketmqRequest } from './message.ts'
import { failureOfCall } from './status.ts'
import type { Transport, TransportDeps } from '../types.ts'

export type { RocketmqRequest } from './message.ts'

/** RocketMQ 5 by the gRPC protocol of its proxy. `delivered` means the broker's `SEND_OK`. */
export function rocketmqTransport(deps: TransportDeps): Transport<RocketmqRequest> {
  return brokerTransport<RocketmqRequest, RocketmqCluster, RocketMessage>('rocketmq', deps, {
    open: broker => rocketmqCluster(deps, broker),
    read: (request, context, broker) => messageOf(request, context, broker.path),
    send: (cluster, message, flight) => cluster.publish(message, flight).catch(failureOfCall)
  })
}
