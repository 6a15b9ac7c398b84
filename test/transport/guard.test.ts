import { once } from 'node:events'
import type { LookupAddress } from 'node:dns'
import { createServer, type AddressInfo, isIP } from 'node:net'
import t from 'tap'
import { guard, type Guard, type GuardOptions, type Resolve } from '../../src/transport/egress/guard.ts'
import type { Failed } from '../../src/transport/failure.ts'
import { httpTransport } from '../../src/transport/http/http.ts'
import { sendContext } from './send-context.ts'
import { targets, type Target } from './targets.ts'

const strict = (more: Partial<GuardOptions> = {}): Guard =>
  guard({ allow: undefined, embedded: false, deny: [], ...more })

const blockedBy = (judged: Guard, url: string): Failed | undefined => {
  const verdict = judged.check(url)
  return verdict instanceof URL ? undefined : verdict
}

/** A resolver that returns these answers and records requests. */
function resolver(answers: Target['answers']): Resolve & { asked: string[] } {
  const asked: string[] = []
  const resolve = async (host: string) => {
    asked.push(host)
    if (typeof answers === 'string') throw Object.assign(new Error(answers), { code: answers })
    return (answers ?? []).map(address => ({ address, family: isIP(address) }))
  }
  return Object.assign(resolve, { asked })
}

/** The result of a connect to this name, without a connection. */
function lookedUp(judged: Guard, host: string, port = 80): Promise<Error | null> {
  return new Promise(resolve => judged.lookup(port)(host, { all: true }, error => resolve(error)))
}

t.test('every known way to write a target is judged as it should be', async t => {
  for (const target of targets) {
    const name = `${target.no} ${JSON.stringify(target.url)} (${target.note})`
    const judged = strict({ resolve: resolver(target.answers) })
    const blocked = blockedBy(judged, target.url)
    switch (target.expected) {
      case 'ALLOW':
        t.equal(blocked, undefined, name)
        break
      case 'REJECT':
      case 'REJECT-UNLOCKABLE':
        t.match(blocked, { kind: 'failed', alarm: 'BLOCKED_TARGET', reason: /^blocked_target: / }, name)
        break
      case 'BLOCK-AT-CONNECT':
        t.equal(blocked, undefined, name)
        t.match(
          await lookedUp(judged, new URL(target.url).hostname),
          { outcome: { alarm: 'BLOCKED_TARGET' } },
          name
        )
        break
      case 'RETRY':
        t.equal(blocked, undefined, name)
        t.match(
          await lookedUp(judged, new URL(target.url).hostname),
          { outcome: { kind: 'failed', reason: /^dns: / } },
          name
        )
        break
    }
  }
})

t.test('the advice in a refusal, taken word for word, lets the target through', async t => {
  for (const target of targets.filter(each => each.expected === 'REJECT-UNLOCKABLE')) {
    const reason = blockedBy(strict(), target.url)?.reason ?? ''
    const setting = /EGRESS_ALLOW=(\S+)$/.exec(reason)?.[1]
    t.ok(setting, reason)
    t.equal(blockedBy(strict({ allow: [setting ?? ''] }), target.url), undefined, reason)
  }
  t.equal(
    blockedBy(strict(), 'http://10.2.3.4/')?.reason,
    'blocked_target: target 10.2.3.4 is in a private range; to allow it set EGRESS_ALLOW=10.2.0.0/16'
  )
  t.match(
    blockedBy(strict({ allow: ['192.168.0.0/16'] }), 'http://10.2.3.4/')?.reason,
    /to allow it add 10\.2\.0\.0\/16 to EGRESS_ALLOW$/,
    'who has a list already is not told to replace it'
  )
})

t.test('no network, however wide, unlocks loopback, metadata or an address inside an address', async t => {
  const wide = strict({ allow: ['0.0.0.0/0', '::/0', '127.0.0.0/8', '169.254.169.254/32'] })
  for (const target of targets.filter(each => each.expected === 'REJECT')) {
    t.ok(blockedBy(wide, target.url), target.url)
  }
  t.equal(wide.warnings.length, 2, 'entries that do nothing are said at start')
  t.equal(
    blockedBy(strict({ allow: ['169.254.169.254:80'] }), 'http://169.254.169.254/'),
    undefined,
    'but host:port does'
  )
  t.ok(
    blockedBy(strict({ allow: ['169.254.169.254:80'] }), 'http://169.254.169.254:81/'),
    'for that port only'
  )
})

t.test('further tricks', async t => {
  const refused = [
    'HTTP://example.com/',
    'http://example.com\t/',
    'http://@example.com/',
    'http://example.com:0/',
    'http:///example.com',
    'http://intranet/',
    'http://metadata/',
    'http://x.svc.cluster.local/',
    'http://[fd00:ec2::254]/',
    'http://[fd20:ce::254]/',
    'http://[::]/',
    'http://[::ffff:0:127.0.0.1]/',
    'http://[64:ff9b:1::1]/',
    'http://[2001:db8::5efe:7f00:1]/',
    'http://[2606:4700::5efe:7f00:1]/',
    'http://[2606:4700::200:5efe:7f00:1]/',
    'http://[4000::1]/',
    'http://100.100.100.200/',
    'http://①②⑦.⓪.⓪.①/',
    'http://127。0。0。1/',
    `http://${'a'.repeat(64)}.example.com/`,
    'http://example.com:2375/',
    '',
    'http://'
  ]
  for (const url of refused) t.ok(blockedBy(strict(), url), JSON.stringify(url))
  t.equal(blockedBy(strict(), 'https://example.com./hook'), undefined, 'one dot may end a name')
  t.notMatch(
    blockedBy(strict(), 'http://user:secret@example.com/')?.reason,
    /secret/,
    'a password is not repeated'
  )
})

t.test('without DATABASE_URL loopback and private networks are open, metadata is not', async t => {
  const embedded = strict({ embedded: true })
  for (const url of [
    'http://127.0.0.1:8080/',
    'http://[::1]:8080/',
    'http://localhost:8080/',
    'http://192.168.1.5/',
    'http://10.1.1.1/'
  ]) {
    t.equal(blockedBy(embedded, url), undefined, url)
  }
  for (const url of [
    'http://169.254.169.254/',
    'http://[fd00:ec2::254]/',
    'http://0.0.0.0/',
    'http://metadata.google.internal/'
  ]) {
    t.ok(blockedBy(embedded, url), url)
  }
  t.ok(blockedBy(strict({ embedded: true, allow: [] }), 'http://127.0.0.1:8080/'), 'set but empty: nothing')
})

t.test('a name that the operator listed may be private or local, but never the metadata service', async t => {
  const listed = (address: string) => strict({ allow: ['warehouse:8080'], resolve: resolver([address]) })
  t.equal(blockedBy(listed('10.0.0.1'), 'http://warehouse:8080/'), undefined)
  t.ok(blockedBy(listed('10.0.0.1'), 'http://warehouse:8081/'))
  t.equal(await lookedUp(listed('10.0.0.1'), 'warehouse', 8080), null)
  t.equal(await lookedUp(listed('127.0.0.1'), 'warehouse', 8080), null)
  t.ok(await lookedUp(listed('169.254.169.254'), 'warehouse', 8080))
  t.equal(await lookedUp(listed('10.0.0.1'), 'WAREHOUSE', 8080), null, 'as a broker advertises its name')
})

t.test('behind DNS64 the IPv4 address inside an IPv6 address is judged by the rules of IPv4', async t => {
  const rows: [address: string, allow: string[], expected: 'allowed' | 'denied'][] = [
    ['64:ff9b::340:a0a', [], 'allowed'],
    ['64:ff9b::3.64.10.10', [], 'allowed'],
    ['::ffff:3.64.10.10', [], 'allowed'],
    ['::ffff:340:a0a', [], 'allowed'],
    ['64:ff9b::10.1.2.3', [], 'denied'],
    ['64:ff9b::10.1.2.3', ['10.1.0.0/16'], 'allowed'],
    ['64:ff9b::10.1.2.3', ['10.1.2.3:443'], 'allowed'],
    ['64:ff9b::10.1.2.3', ['[64:ff9b::a01:203]:443'], 'allowed'],
    ['64:ff9b::10.1.2.3', ['64:ff9b::a01:203'], 'allowed'],
    ['64:ff9b::10.1.2.3', ['64:ff9b::/96', '::/0'], 'denied'],
    ['64:ff9b::127.0.0.1', ['10.0.0.0/8', '0.0.0.0/0'], 'denied'],
    ['64:ff9b::169.254.169.254', ['0.0.0.0/0', 'api.partner.com:443'], 'denied'],
    ['::ffff:169.254.169.254', ['0.0.0.0/0', 'api.partner.com:443'], 'denied'],
    // Where the IPv4 address is in these is not known, or they lead through somebody else's relay.
    ['64:ff9b:1::340:a0a', ['::/0', 'api.partner.com:443'], 'denied'],
    ['64:ff9b:1::340:a0a', ['[64:ff9b:1::340:a0a]:443'], 'allowed'],
    ['::3.64.10.10', [], 'denied'],
    ['::ffff:0:3.64.10.10', [], 'denied'],
    ['2002:340:a0a::1', [], 'denied'],
    ['2001:0:4136:e378:8000:63bf:3fff:fdd2', [], 'denied']
  ]
  for (const [address, allow, expected] of rows) {
    const judged = strict({ allow, resolve: resolver([address]) })
    const refused = judged.judge('api.partner.com', 443, address)
    t.equal(refused ? 'denied' : 'allowed', expected, `${address} with ${allow.join()}`)
    t.equal((await lookedUp(judged, 'api.partner.com', 443)) ? 'denied' : 'allowed', expected, address)
  }
  const own = strict({ allow: ['0.0.0.0/0'], deny: ['10.0.0.9:5432'] })
  t.match(own.judge('db.example.com', 5432, '64:ff9b::a00:9')?.reason, /own endpoint/)
})

t.test('a dot that ends a name changes nothing but the question to DNS', async t => {
  const resolve = resolver(['10.0.0.1'])
  const judged = strict({ allow: ['warehouse.internal:8080'], deny: ['db.example.com:5432'], resolve })
  t.equal(blockedBy(judged, 'http://warehouse.internal.:8080/'), undefined)
  t.equal(await lookedUp(judged, 'warehouse.internal.', 8080), null)
  t.equal(judged.judge('warehouse.internal.', 8080, '10.0.0.1'), undefined, 'on the open socket')
  t.strictSame(resolve.asked, ['warehouse.internal.'], 'without the search list of the resolver')
  t.equal(
    blockedBy(strict({ allow: ['warehouse.internal.:8080'] }), 'http://warehouse.internal:8080/'),
    undefined
  )
  t.match(blockedBy(judged, 'http://db.example.com.:5432/')?.reason, /./)
})

t.test('of the addresses of a name those that are allowed are used, and only those', async t => {
  const given = (answers: string[], allow: string[] = []) =>
    new Promise<unknown>(resolve =>
      strict({ allow, resolve: resolver(answers) }).lookup(443)(
        'api.partner.com',
        { all: true },
        (error, addresses) =>
          resolve(error ? 'refused' : (addresses as LookupAddress[]).map(one => one.address))
      )
    )
  t.same(await given(['3.64.10.10', '64:ff9b::340:a0a']), ['3.64.10.10', '64:ff9b::340:a0a'])
  t.same(await given(['64:ff9b:1::340:a0a', '3.64.10.10'], ['api.partner.com:443']), ['3.64.10.10'])
  t.same(await given(['10.0.0.1', '3.64.10.10', '169.254.169.254']), ['3.64.10.10'])
  t.same(await given(['10.0.0.1', '3.64.10.10'], ['api.partner.com:443']), ['10.0.0.1', '3.64.10.10'])
  t.same(await given(['10.0.0.1', '169.254.169.254']), 'refused')
})

t.test('our own API and stores are no targets, even where their network is allowed', async t => {
  const allow = [
    '127.0.0.1:3000',
    '127.0.0.2:3000',
    '[::1]:5432',
    '10.0.0.0/8',
    'db.example.com:5432',
    '10.0.0.9:5432'
  ]
  const own = strict({
    allow,
    deny: ['0.0.0.0:3000', 'localhost:5432', 'db.example.com:5432'],
    resolve: resolver(['10.0.0.9'])
  })
  for (const url of [
    'http://127.0.0.1:3000/',
    'http://127.0.0.2:3000/',
    'http://[::1]:5432/',
    'http://db.example.com:5432/'
  ]) {
    t.match(blockedBy(own, url)?.reason, /this service's own endpoint/, url)
  }
  await own.ready(5432)
  t.match(
    own.judge('10.0.0.9', 5432, '10.0.0.9')?.reason,
    /own endpoint/,
    'by address, once its name is resolved'
  )
  t.equal(own.judge('10.0.0.9', 80, '10.0.0.9'), undefined, 'another port of that host is somebody else')
})

t.test('entries that cannot be read stop the start and are named', async t => {
  for (const entry of ['10.0.0.0/33', 'warehouse', 'http://warehouse:80', '10.0.0.1:99999', 'a b:80']) {
    t.throws(
      () => strict({ allow: [entry] }),
      { message: new RegExp(`EGRESS_ALLOW: "${entry.replaceAll('.', '\\.')}"`) },
      entry
    )
  }
  t.throws(() => strict({ deny: ['nonsense'] }))
})

t.test('fifty connects at once ask for a name once', async t => {
  const resolve = resolver(['93.184.216.34'])
  const judged = strict({ resolve })
  await Promise.all(Array.from({ length: 50 }, () => lookedUp(judged, 'many.example')))
  t.strictSame(resolve.asked, ['many.example'])
})

t.test('a denied address on this machine never sees a connection, however it is written', async t => {
  const listener = createServer(socket => socket.destroy())
  listener.listen(0, '127.0.0.1')
  await once(listener, 'listening')
  t.teardown(() => listener.close())
  const { port } = listener.address() as AddressInfo
  let connections = 0
  listener.on('connection', () => {
    connections++
  })

  const http = httpTransport({ guard: strict({ allow: [], resolve: resolver(['127.0.0.1']) }) })
  t.teardown(() => http.close())
  const hosts = [
    '127.0.0.1',
    '127.1',
    '2130706433',
    '0x7f.1',
    '0',
    '[::ffff:127.0.0.1]',
    'localhost',
    'public.example',
    '127.0.0.1.'
  ]
  for (const host of hosts) {
    t.match(
      await http.send({ url: `http://${host}:${port}/` }, sendContext()),
      { kind: 'failed', alarm: 'BLOCKED_TARGET' },
      host
    )
    await http.send({ url: `https://${host}:${port}/` }, sendContext())
  }
  t.equal(connections, 0)

  // The backstop: an open socket to a denied address is closed before its first byte, regardless of the lookup.
  const judged = strict({ allow: [] })
  const fooled: Guard = {
    ...judged,
    lookup: () => (_host, _options, tell) => tell(null, [{ address: '127.0.0.1', family: 4 }])
  }
  let bytes = 0
  const closed: Promise<unknown>[] = []
  listener.removeAllListeners('connection')
  listener.on('connection', socket => {
    socket
      .on('data', data => {
        bytes += data.length
      })
      .on('error', () => {})
    closed.push(once(socket, 'close'))
  })
  const late = httpTransport({ guard: fooled })
  t.teardown(() => late.close())
  for (const scheme of ['http', 'https']) {
    t.match(
      await late.send({ url: `${scheme}://public.example:${port}/`, body: 'x' }, sendContext()),
      { alarm: 'BLOCKED_TARGET' },
      scheme
    )
  }
  await Promise.all(closed)
  t.equal(bytes, 0)
})
