// The reader of receipts against a double of Kafka, while PostgreSQL is read-only.
import t from 'tap'
import { apis, fetched, framed, kafkaDouble, recordsOf } from '../../fuzz/kafka-double.ts'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { readReceipts } from '../../src/transport/kafka/receipts.ts'
import { until } from '../support/until.ts'

t.setTimeout(120_000)

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
