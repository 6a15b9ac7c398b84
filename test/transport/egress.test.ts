// Over every transport, and in every spelling of the target: a denied address never sees a connection.
import { createSocket } from 'node:dgram'
import { Resolver } from 'node:dns/promises'
import { once } from 'node:events'
import { isIP } from 'node:net'
import t, { type Test } from 'tap'
import { guard, type Resolve } from '../../src/transport/egress/guard.ts'
import { until } from '../support/until.ts'
import { everyTransport, wayTo } from './everywhere.ts'
import { scriptedServer } from './scripted-server.ts'

t.setTimeout(600_000)

/** A DNS server of A records. Each query gets the next of the answers; the last answer repeats. */
async function dns(t: Test, answers: string[][]): Promise<{ resolve: Resolve; asked: () => number }> {
  let asked = 0
  const socket = createSocket('udp4')
  socket.on('message', (query, from) => {
    const addresses = answers[Math.min(asked++, answers.length - 1)] ?? []
    const end = query.indexOf(0, 12) + 5
    const head = Buffer.from(query.subarray(0, 12))
    head.writeUInt16BE(0x8180, 2)
    head.writeUInt16BE(addresses.length, 6)
    head.writeUInt32BE(0, 8)
    const records = addresses.map(each =>
      // The name by its offset, A, IN, a time to live of 0 s, 4 bytes
      Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, ...each.split('.').map(Number)])
    )
    socket.send(Buffer.concat([head, query.subarray(12, end), ...records]), from.port, from.address)
  })
  socket.bind(0, '127.0.0.1')
  await once(socket, 'listening')
  t.teardown(() => new Promise<void>(resolve => socket.close(() => resolve())))
  const resolver = new Resolver({ timeout: 1_000, tries: 1 })
  resolver.setServers([`127.0.0.1:${socket.address().port}`])
  const resolve: Resolve = async host =>
    (await resolver.resolve4(host)).map(address => ({ address, family: isIP(address) }))
  return { resolve, asked: () => asked }
}

for (const name of everyTransport) {
  t.test(`over ${name} a denied address on this machine sees no connection`, async t => {
    const trap = await scriptedServer(t)
    const resolve: Resolve = async () => [{ address: '127.0.0.1', family: 4 }]
    const strict = guard({ allow: [], embedded: false, deny: [], resolve })
    for (const host of ['127.0.0.1', '0.0.0.0', '[::ffff:127.0.0.1]', 'localhost', 'public.example']) {
      const way = await wayTo(t, name, strict, `${host}:${trap.port}`)
      const outcome = await way.send()
      t.match(outcome, { kind: 'failed', alarm: 'BLOCKED_TARGET', reason: /^blocked_target: / }, host)
      await way.close()
    }
    t.equal(trap.taken, 0)
  })

  t.test(`over ${name} the refusal names the very setting that lets it through`, async t => {
    const server = await scriptedServer(t, socket => socket.destroy())
    for (const host of ['127.0.0.1', 'warehouse.internal']) {
      const place = `${host}:${server.port}`
      const resolve: Resolve = async () => [{ address: '127.0.0.1', family: 4 }]
      const strict = guard({ allow: [], embedded: false, deny: [], resolve })
      const refused = await (await wayTo(t, name, strict, place)).send()
      const reason = refused.kind === 'failed' ? refused.reason : ''
      const setting = /; to allow it set EGRESS_ALLOW=(\S+)$/.exec(reason)?.[1]
      t.ok(setting, reason)
      t.equal(server.taken, 0)
      const open = guard({ allow: [setting ?? ''], embedded: false, deny: [], resolve })
      const way = await wayTo(t, name, open, place)
      await until(`${setting} lets it through`, async () => {
        t.match(await way.send(500), { kind: 'failed', alarm: undefined })
        return server.taken > 0
      })
      server.taken = 0
    }
  })

  t.test(`over ${name} our own PostgreSQL is no target even where its address is allowed`, async t => {
    const postgres = await scriptedServer(t)
    const at = `127.0.0.1:${postgres.port}`
    const own = guard({ allow: ['10.0.0.0/8', at], embedded: true, deny: [`localhost:${postgres.port}`] })
    const outcome = await (await wayTo(t, name, own, at)).send()
    t.match(outcome, { kind: 'failed', alarm: 'BLOCKED_TARGET', reason: /this service's own endpoint/ })
    t.equal(postgres.taken, 0)
  })

  t.test(`over ${name} a name that is rebound between two sends is judged at each of them`, async t => {
    const good = await scriptedServer(t, socket => socket.destroy())
    const { resolve, asked } = await dns(t, [['127.0.0.2'], ['127.0.0.1']])
    const judged = guard({ allow: [`127.0.0.2:${good.port}`], embedded: false, deny: [], resolve })
    const way = await wayTo(t, name, judged, `rebind.test:${good.port}`)
    // Nobody listens on the allowed address. The other one would accept a connection.
    t.match(await way.send(500), { kind: 'failed', alarm: undefined })
    // After a failed connect a broker gets a rest: until then nothing is looked up.
    await until('a send is refused, or leaves', async () => {
      const outcome = await way.send(500)
      return good.taken > 0 || (outcome.kind === 'failed' && outcome.alarm === 'BLOCKED_TARGET')
    })
    t.ok(asked() >= 2, 'it was looked up again')
    t.equal(good.taken, 0)
  })

  t.test(`over ${name} of the addresses of a name only the allowed ones are connected to`, async t => {
    const trap = await scriptedServer(t)
    for (const answers of [
      ['127.0.0.2', '127.0.0.1'],
      ['127.0.0.1', '127.0.0.2']
    ]) {
      const { resolve } = await dns(t, [answers])
      const judged = guard({ allow: [`127.0.0.2:${trap.port}`], embedded: false, deny: [], resolve })
      const way = await wayTo(t, name, judged, `mixed.test:${trap.port}`)
      // Nobody listens on the allowed address. The other one would accept a connection.
      t.match(await way.send(500), { kind: 'failed', alarm: undefined }, answers.join())
    }
    t.equal(trap.taken, 0)
  })

  t.test(`over ${name} a name whose addresses are all denied is refused with each of them`, async t => {
    const trap = await scriptedServer(t)
    const { resolve } = await dns(t, [['127.0.0.1', '10.1.2.3']])
    const judged = guard({ allow: ['10.9.0.0/16'], embedded: false, deny: [], resolve })
    const way = await wayTo(t, name, judged, `denied.test:${trap.port}`)
    const reason = `blocked_target: target denied.test (127.0.0.1) is a loopback address, (10.1.2.3) is in a private range; to allow it add 127.0.0.1:${trap.port},10.1.0.0/16 to EGRESS_ALLOW`
    t.match(await way.send(), { kind: 'failed', alarm: 'BLOCKED_TARGET', reason })
    t.equal(trap.taken, 0)
  })
}
