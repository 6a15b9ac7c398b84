// A broker of Kafka that answers rubbish fails only its own attempts, and no process ends. Each story has its own process.
// Takes long: npm run test:long.
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { apis, fetched, framed, kafkaDouble, recordsOf, type Answer } from '../../fuzz/kafka-double.ts'
import { client } from './client-process.ts'

t.setTimeout(2_400_000)

const header = (length: number): Buffer => {
  const bytes = Buffer.alloc(4)
  bytes.writeInt32BE(length)
  return bytes
}
const raw = (id: Buffer, ...rest: number[]): Buffer => framed(id, Buffer.from(rest))

/** Rubbish instead of an answer. */
const rubbish: Record<string, Answer> = {
  'an answer of two bytes': () => Buffer.from([0, 0, 0, 2, 1, 2, 3, 4]),
  'an answer of none': () => Buffer.from([0, 0, 0, 0, 0, 0, 0, 0]),
  'an answer of sixteen': ({ id }) => raw(id, ...Array(12).fill(0xff)),
  'an answer that ends early': ({ id }) => raw(id),
  'a length of -5': ({ id }) => Buffer.concat([header(-5), id, Buffer.alloc(16)]),
  'a length of 0x7fffffff': ({ id }) => Buffer.concat([header(0x7fffffff), id]),
  'an array of 2^32': ({ id }) => raw(id, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xf),
  'an answer to nobody': () => raw(Buffer.from([9, 9, 9, 9]), 1, 2, 3),
  'an answer that is half': (_, sound) =>
    framed(sound.subarray(4, 8), sound.subarray(8, sound.length / 2 + 4)),
  'an error that nobody knows': ({ id }) => raw(id, 0, 0, 0, 0, 0, 0x7f, 0x7f, 1, 1, 1)
}

/** A broker whose answer to requests of the kind `api` is `now`; the process that sends to it or reads from it. */
async function played(t: Test, what: 'kafka' | 'receipts') {
  const says: { api: number; now: Answer | undefined } = { api: 0, now: undefined }
  const topic = what === 'kafka' ? 'orders' : 'ackbox.receipts'
  const double = await kafkaDouble(topic, (request, ...rest) =>
    request.api === says.api ? says.now?.(request, ...rest) : undefined
  )
  t.teardown(() => double.close())
  const { next, tell, printed } = await client(t, what, `kafka://127.0.0.1:${double.port}`)
  return {
    says,
    printed,
    async send(timeoutMs = 10_000) {
      tell({ send: timeoutMs })
      return next('outcome')
    },
    /** Reads until a receipt arrives, or until the broker is reported as unavailable; then it stops. */
    async read(about: 'receipt' | 'said') {
      tell({ begin: true })
      const heard = await next(about)
      tell({ begin: false })
      return { ...heard, ...(await next('stopped')) }
    }
  }
}

t.test('whatever Kafka answers, its sends fail, the process lives, and the next one is sent', async t => {
  const { says, send, printed } = await played(t, 'kafka')
  for (const api of ['apiVersions', 'metadata', 'produce'] as const) {
    for (const [name, answer] of Object.entries(rubbish)) {
      // This failed send drops the client: the next send repeats the requests of a new client.
      Object.assign(says, { api: apis.produce, now: rubbish['an answer of none'] })
      await send()
      Object.assign(says, { api: apis[api], now: answer })
      t.match(await send(2_000), { outcome: { kind: 'failed', reason: /./ } }, `${api}: ${name}`)
    }
  }
  says.now = undefined
  t.match(await send(), { outcome: { kind: 'delivered' } })
  t.same(printed, [], 'and nothing is printed')
})

const asked = [
  'apiVersions',
  'metadata',
  'findCoordinator',
  'joinGroup',
  'syncGroup',
  'listOffsets',
  'offsetFetch',
  'fetch'
] as const
t.test('whatever Kafka answers, its reader of receipts lives, and reads the next one', async t => {
  const { says, read, printed } = await played(t, 'receipts')
  for (const api of asked) {
    for (const [name, answer] of Object.entries(rubbish)) {
      Object.assign(says, { api: apis[api], now: answer })
      t.match(await read('said'), { said: 'receipts.unavailable' }, `${api}: ${name}`)
    }
  }
  says.now = undefined
  t.match(await read('receipt'), { receipt: '{}' })
  t.same(printed, [], 'and nothing is printed')
})

/** Announces the frame, sends its beginning, and then as many bytes as the client takes. */
const pours =
  (length: number): Answer =>
  ({ id }, _, socket) => {
    const block = Buffer.alloc(65_536)
    let left = 200 << 20
    const more = (): void => {
      while (left > 0 && !socket.destroyed) {
        left -= block.length
        if (!socket.write(block)) return
      }
    }
    socket.on('drain', more)
    setImmediate(more)
    return Buffer.concat([header(length), id])
  }
/** A batch with these bytes as its records. */
const batch = (records: Buffer, count: number, attributes = 0): Buffer => {
  const head = Buffer.from(recordsOf('ackbox.receipts').subarray(0, 61))
  head.writeInt32BE(49 + records.length, 8)
  head.writeInt16BE(attributes, 21)
  head.writeInt32BE(count, 57)
  return Buffer.concat([head, records])
}
const fetches =
  (records: Buffer): Answer =>
  ({ id }) =>
    framed(id, fetched(records))
const [gzip, snappy, lz4] = [1, 2, 3]

/** What is large, long or deep, and by its length an answer like any other. */
const heavy: Record<string, [what: 'kafka' | 'receipts', api: number, answer: Answer]> = {
  'a length of 0x7fffffff, and as much as is taken': ['kafka', apis.metadata, pours(0x7f_ff_ff_ff)],
  'an answer of 1 MB, and as much again without end': ['kafka', apis.metadata, pours(1 << 20)],
  'a million values of nothing': ['kafka', apis.metadata, ({ id }) => framed(id, Buffer.alloc(1 << 20, 1))],
  'a list of 2^32, each with an error': [
    'kafka',
    apis.metadata,
    ({ id }) =>
      framed(
        id,
        Buffer.concat([
          Buffer.from([0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 7]),
          Buffer.alloc(900_000, 1)
        ])
      )
  ],
  'records without end in a batch of 4 MB': [
    'receipts',
    apis.fetch,
    fetches(batch(Buffer.alloc(4_000_000, 1), 0x7f_ff_ff_ff))
  ],
  'a record that ends before it begins': [
    'receipts',
    apis.fetch,
    fetches(batch(Buffer.from([20, 0, 0, 0, 1, 0x7f, 0]), 0x7f_ff_ff_ff))
  ],
  'a number of 1 MB': ['receipts', apis.fetch, fetches(batch(Buffer.alloc(1 << 20, 0xff), 1))],
  'a gzip of 1 GB': ['receipts', apis.fetch, fetches(batch(gzipSync(Buffer.alloc(1 << 30)), 1, gzip))],
  'an LZ4 of 1 GB': ['receipts', apis.fetch, fetches(batch(lz4Of(4_000_000), 1, lz4))],
  'a Snappy of 1 GB': [
    'receipts',
    apis.fetch,
    fetches(
      batch(
        Buffer.concat([
          Buffer.from([0xff, 0xff, 0xff, 0xff, 3, 0, 1]),
          Buffer.from('fe0100'.repeat(700_000), 'hex')
        ]),
        1,
        snappy
      )
    )
  ],
  'a partition of the number 2^31 - 1': [
    'receipts',
    apis.listOffsets,
    (_, sound) => {
      const at = sound.indexOf('ackbox.receipts') + 'ackbox.receipts'.length + 1
      const changed = Buffer.from(sound)
      changed.writeInt32BE(0x7f_ff_ff_ff, at)
      return changed
    }
  ]
}

/** One LZ4 block that repeats one byte: each byte of it adds 255 repetitions. */
function lz4Of(bytes: number): Buffer {
  const head = Buffer.from([4, 0x22, 0x4d, 0x18, 0x40, 0x70, 0, 0, 0, 0, 0])
  head.writeUInt32LE(4 + bytes, 7)
  return Buffer.concat([head, Buffer.from([0x1f, 0, 1, 0]), Buffer.alloc(bytes, 0xff)])
}

for (const what of ['kafka', 'receipts'] as const) {
  const isReader = what === 'receipts'
  const who = isReader ? 'its reader of receipts' : 'a send'
  t.test(`whatever Kafka pours out costs ${who} less than 128 MB and 200 ms`, async t => {
    const { says, send, read, printed } = await played(t, what)
    const idle = isReader ? await read('receipt') : await send()
    for (const [name, [whose, api, answer]] of Object.entries(heavy)) {
      if (whose !== what) continue
      if (!isReader) {
        Object.assign(says, { api: apis.produce, now: rubbish['an answer of none'] })
        await send()
      }
      Object.assign(says, { api, now: answer })
      const after: Record<string, unknown> = isReader ? await read('said') : await send(5_000)
      t.match(after, isReader ? { said: 'receipts.unavailable' } : { outcome: { kind: 'failed' } }, name)
      const grownMb = Number(after['peakMb']) - Number(idle['peakMb'])
      t.ok(grownMb < 128, `${grownMb} MB more than before`)
      const ms = Number(after['longestBlockMs'])
      t.ok(ms < 200, `${ms} ms without a turn`)
    }
    t.same(printed, [], 'and nothing is printed')
  })
}
