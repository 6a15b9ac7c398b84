// The reader of receipts against a double of Kafka, while PostgreSQL is read-only or the group has no partition for it.
import { Writer } from '@platformatic/kafka'
import t from 'tap'
import { apis, fetched, framed, kafkaDouble, recordsOf } from '../../fuzz/kafka-double.ts'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { readReceipts } from '../../src/transport/kafka/receipts.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

const topic = 'ackbox.receipts'
const large = recordsOf(topic, undefined, 'x'.repeat(900_000))

/** A separate batch for each offset. */
function batchAt(offset: number): Buffer {
  const batch = Buffer.from(large)
  batch.writeBigInt64BE(BigInt(offset))
  return batch
}

t.test('of large receipts no more are fetched than may be in hand', async t => {
  let fetches = 0
  let heartbeats = 0
  const double = await kafkaDouble(topic, ({ api, id }) => {
    if (api === apis.heartbeat) heartbeats++
    return api === apis.fetch ? framed(id, fetched(batchAt(fetches++))) : undefined
  })
  t.teardown(() => double.close())
  const stop = new AbortController()
  let seen = 0
  const over = readReceipts(
    {
      broker: parseBroker('kafka', `kafka://127.0.0.1:${double.port}`) as Broker,
      guard: guard({ allow: undefined, embedded: true, deny: [] }),
      log: { info: () => {}, warn: () => {} }
    },
    async () => {
      seen++
      return new Promise(resolve => stop.signal.addEventListener('abort', () => resolve('later')))
    },
    stop.signal
  )
  t.teardown(() => (stop.abort(), over))
  await until('as many are in hand as may be', () => seen >= 7)
  const before = heartbeats
  await until('its heart goes on', () => heartbeats > before + 1)
  t.equal(seen, 7)
  t.ok(fetches <= 10, `${fetches} fetches`)
})

const code = { coordinatorNotAvailable: 15, notCoordinator: 16, rebalanceInProgress: 27 }

/** The answer to a SyncGroup: the topic has fewer partitions than the group has members. */
function noPartition(): Buffer {
  const assignment = Writer.create()
    .appendInt16(0)
    .appendArray([], () => {}, false, false)
    .appendInt32(0).buffer
  return Writer.create()
    .appendTaggedFields()
    .appendInt32(0)
    .appendInt16(0)
    .appendString('consumer')
    .appendString('roundrobin')
    .appendBytes(assignment)
    .appendTaggedFields().buffer
}

const failedHeartbeat = (error: number): Buffer =>
  Writer.create().appendTaggedFields().appendInt32(0).appendInt16(error).appendTaggedFields().buffer

const failedJoin = (error: number): Buffer =>
  Writer.create()
    .appendTaggedFields()
    .appendInt32(0)
    .appendInt16(error)
    .appendInt32(-1)
    .appendString(null)
    .appendString(null)
    .appendString('')
    .appendBoolean(false)
    .appendString('')
    .appendArray([], () => {})
    .appendTaggedFields().buffer

t.test('a reader without a partition joins the group again after a heartbeat that failed', async t => {
  const faults = [
    { heartbeat: code.notCoordinator },
    { heartbeat: code.rebalanceInProgress, join: code.coordinatorNotAvailable }
  ]
  await Promise.all(
    faults.map(async ({ heartbeat, join }) => {
      let heartbeats = 0
      let joins = 0
      const double = await kafkaDouble(topic, ({ api, id }) => {
        if (api === apis.syncGroup) return framed(id, noPartition())
        if (api === apis.heartbeat && ++heartbeats === 1) return framed(id, failedHeartbeat(heartbeat))
        if (api === apis.joinGroup && ++joins === 2 && join !== undefined) return framed(id, failedJoin(join))
        return undefined
      })
      t.teardown(() => double.close())
      const logged: string[] = []
      const say = (_: object, message: string): void => void logged.push(message)
      const stop = new AbortController()
      const over = readReceipts(
        {
          broker: parseBroker('kafka', `kafka://127.0.0.1:${double.port}`) as Broker,
          guard: guard({ allow: undefined, embedded: true, deny: [] }),
          log: { info: say, warn: say }
        },
        async () => 'done',
        stop.signal,
        500
      )
      t.teardown(() => (stop.abort(), over))
      await until('it has joined again', () => joins > (join === undefined ? 1 : 2))
      await until('its heart goes on', () => heartbeats > 1)
      await until('both are said', () => logged.length >= 2)
      t.same(logged.slice(0, 2), ['receipts.unavailable', 'receipts.available'])
    })
  )
})
