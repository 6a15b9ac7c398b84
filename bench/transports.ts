// npm run bench -- transports: the cost of our transports compared with the bare publish loop of their clients, with the same
// confirmation, against the real server, in turns.
import { parseBroker, type Broker } from '../src/transport/broker.ts'
import { guard } from '../src/transport/egress/guard.ts'
import { transports, type TransportName } from '../src/transport/registry.ts'
import { median } from './median.ts'
import { asked, chosen, flag, text, whole } from './options.ts'
import { ways, type Way } from './ways.ts'

const help = `npm run bench -- transports [options]

Each transport against the bare publish loop of its own client, both with the same confirmation and as many in flight, in
turns on one real server. The servers are those of npm run test:interop. stdout gets one line of JSON for each transport.

  --only A,B     some of ${Object.keys(ways).join(', ')}
  --messages N   messages of a round (10000)
  --in-flight N  messages in flight (100)
  --rounds N     rounds of both by turns; medians are reported; the ratio is the median of the rounds' ratios (9)
  --quick        a tiny run that shows that it works, with redis-stream
  --help`

const body = JSON.stringify({ orderId: '1', cents: 1, note: 'x'.repeat(150) })
const never = new AbortController().signal
const headers = {
  'webhook-id': 'msg_0198f3c2a1b27c4d8e5f',
  'webhook-timestamp': '1700000000',
  'webhook-signature': `v1,${'a'.repeat(43)}=`,
  'ackbox-task-no': 'bench:1',
  'ackbox-message-code': 'bench',
  'ackbox-scene-type': '',
  'ackbox-attempt': '1'
}

export async function main(args: string[]): Promise<void> {
  const options = { only: text, messages: text, 'in-flight': text, rounds: text, quick: flag }
  const values = asked(args, options, help)
  const { quick } = values
  const amounts: Amounts = {
    messages: whole('--messages', values.messages ?? (quick ? '200' : '10000')),
    inFlight: whole('--in-flight', values['in-flight'] ?? '100'),
    rounds: whole('--rounds', values.rounds ?? (quick ? '1' : '9'))
  }
  const all = Object.keys(ways).map(name => ({ name }))
  const names = chosen(all, values.only ?? (quick ? 'redis-stream' : undefined)).map(({ name }) => name)
  for (const name of names) {
    const way = ways[name]
    if (way) console.log(JSON.stringify(await compare(name as TransportName, way, amounts)))
  }
}

interface Amounts {
  messages: number
  inFlight: number
  rounds: number
}

async function compare(
  name: TransportName,
  way: Way,
  { messages, inFlight, rounds }: Amounts
): Promise<object> {
  console.error(`${name}: starting its server`)
  const ground = await way(headers)
  try {
    const broker = parseBroker(name, ground.url)
    if (typeof broker === 'string') throw new Error(broker)
    const made = await transports(
      {
        guard: guard({ allow: undefined, embedded: true, deny: [] }),
        brokers: new Map<string, Broker>([[name, broker]]),
        log: { info: () => {}, warn: (fields, message) => console.error(name, message, fields) }
      },
      [name]
    )
    const ours = made[name]
    if (!ours) throw new Error(`no transport ${name}`)
    let sent = 0
    const send = async () => {
      const outcome = await ours.send(ground.request(body), {
        downstream: name,
        timeoutMs: 30_000,
        signal: never,
        raw: body,
        headers: () => ({ ...headers, 'webhook-id': `msg_${sent++}` })
      })
      if (outcome.kind !== 'delivered') throw new Error(`${name}: ${outcome.reason}`)
    }
    const bare = () => ground.publish(body)
    const rates: { bare: number[]; ours: number[] } = { bare: [], ours: [] }
    for (const one of [bare, send]) await rate(one, messages / 5, inFlight)
    for (let round = 1; round <= rounds; round++) {
      rates.bare.push(await rate(bare, messages, inFlight))
      rates.ours.push(await rate(send, messages, inFlight))
      console.error(
        `${name} ${round}/${rounds}: bare ${shown(rates.bare)}, ours ${shown(rates.ours)} a second`
      )
    }
    await ours.close()
    const ratios = rates.ours.map((each, i) => each / (rates.bare[i] ?? NaN))
    return {
      bench: `transport ${name}`,
      ratio: Number(median(ratios).toFixed(2)),
      bare: Math.round(median(rates.bare)),
      ours: Math.round(median(rates.ours)),
      messages,
      inFlight,
      rounds
    }
  } finally {
    await ground.close()
  }
}

const shown = (rates: number[]): string => String(Math.round(rates.at(-1) ?? NaN))

async function rate(send: () => Promise<unknown>, count: number, inFlight: number): Promise<number> {
  let left = count
  const began = performance.now()
  await Promise.all(
    Array.from({ length: inFlight }, async () => {
      while (left-- > 0) await send()
    })
  )
  return (count / (performance.now() - began)) * 1_000
}
