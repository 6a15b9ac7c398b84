import t from 'tap'
import { readConfig, SettingError } from '../../src/service/config.ts'
import { only } from '../support/only.ts'

const secret = 'k'.repeat(32)
const databaseUrl = 'postgres://ackbox:hunter2@db.internal/ackbox'
const complaint = (env: Record<string, string | undefined>): string => {
  try {
    readConfig(env)
  } catch (err) {
    if (err instanceof SettingError) return err.message
    throw err
  }
  return ''
}

t.test('DTM is off, and on with the servers that its messages may call', t => {
  const DTM_TARGETS = 'shop=http://10.2.0.7:8080,stock=https://stock.example.com'
  t.equal(readConfig({}).dtmTargets, undefined)
  t.equal(readConfig({ DTM_TARGETS }).dtmTargets, undefined)
  t.same(
    [...(readConfig({ DTM: 'on', DTM_TARGETS }).dtmTargets ?? [])],
    [
      ['shop', 'http://10.2.0.7:8080'],
      ['stock', 'https://stock.example.com']
    ]
  )
  t.match(complaint({ DTM: 'on' }), /^DTM=on needs DTM_TARGETS/)
  t.match(complaint({ DTM: 'yes' }), /^DTM must be one of on, off/)
  t.match(
    complaint({ DTM: 'on', DTM_TARGETS: 'http://shop' }),
    /^DTM_TARGETS must be names and origins, .* but is "http:\/\/shop"$/
  )
  t.notMatch(complaint({ DTM: 'on', DTM_TARGETS: 'shop=http://u:hunter2@shop' }), /hunter2/)
  t.end()
})

t.test('without any setting it is a demo on this machine, with everything of its own', async t => {
  const config = readConfig({})
  t.match(config, {
    embedded: true,
    host: '127.0.0.1',
    port: 3000,
    publicUrl: 'http://127.0.0.1:3000',
    auth: false,
    demo: true,
    sweepMs: 1000,
    workerYieldAfter: 5,
    leaseMarginMs: 10_000,
    retentionDays: 30,
    forgetMs: 30 * 86_400_000,
    logLevel: 'info',
    trustProxy: false,
    redisPrefix: 'ackbox',
    pgPool: 10,
    dataDir: '.ackbox',
    egressAllow: undefined,
    warnings: { length: 0 }
  })
  t.same([...config.roles], ['api', 'worker', 'dispatcher'])
  t.equal(config.failpoints.size, 0)
  t.notOk('databaseUrl' in config)
})

t.test('with a database of its own the operator gets keys, no demo, and must bring a secret', async t => {
  t.match(readConfig({ DATABASE_URL: databaseUrl, SECRET: secret }), {
    embedded: false,
    auth: true,
    demo: false,
    secret
  })
  t.match(complaint({ DATABASE_URL: databaseUrl }), /^SECRET is required with DATABASE_URL/)
})

t.test('nothing that listens to the world goes without keys', async t => {
  t.equal(readConfig({ HOST: '0.0.0.0' }).auth, true, 'not even by default')
  t.match(complaint({ HOST: '0.0.0.0', AUTH: 'off' }), /AUTH=off is accepted on a loopback HOST only/)
  for (const HOST of ['127.0.0.1', '127.8.8.8', '::1', 'localhost']) {
    t.equal(readConfig({ HOST, AUTH: 'off', DATABASE_URL: databaseUrl, SECRET: secret }).auth, false, HOST)
  }
  for (const HOST of ['0.0.0.0', '::', '127.example.com', '10.0.0.1', 'localhost.example.com']) {
    t.match(complaint({ HOST, AUTH: 'off' }), /AUTH=off/, HOST)
  }
  t.match(complaint({ HOST: '10.0.0.1', DEMO: 'on', DATABASE_URL: databaseUrl, SECRET: secret }), /DEMO=on/)
})

t.test('roles are split only where a database is shared', async t => {
  t.same(
    [...readConfig({ ROLE: ' worker, api', DATABASE_URL: databaseUrl, SECRET: secret }).roles],
    ['worker', 'api']
  )
  t.match(complaint({ ROLE: 'api' }), /ROLE .* needs DATABASE_URL/)
  t.match(complaint({ ROLE: 'api,wroker' }), /ROLE must be some of api, worker, dispatcher/)
  t.match(complaint({ ROLE: ',' }), /ROLE must be some of/)
})

t.test('a value out of its range hides nothing that is wrong beside it', async t => {
  const said = complaint({
    PORT: '70000',
    DATABASE_URL: databaseUrl,
    RETENTION_DAY: '7',
    HOST: '0.0.0.0',
    AUTH: 'off'
  })
  t.match(said, /^PORT must be a whole number from 0 to 65535, but is "70000"$/m)
  t.match(said, /^Unknown setting RETENTION_DAY\. Did you mean RETENTION_DAYS\?$/m)
  t.match(said, /^SECRET is required with DATABASE_URL/m)
  t.match(said, /^AUTH=off is accepted on a loopback HOST only/m)
  t.notMatch(complaint({ DATABASE_URL: databaseUrl, SECRET: 'short' }), /is required/, 'it is said once')
  t.notMatch(complaint({ DATABASE_URL: 'mysql://db', ROLE: 'api' }), /ROLE/, 'a database was meant')
})

t.test('everything wrong is said at once, by name, with what would be right', async t => {
  const said = complaint({
    PORT: '70000',
    SWEEP_MS: '1e3',
    LOG_LEVEL: 'loud',
    AUTH: 'yes',
    PG_POOL: '1',
    ROLE: 'apii',
    EGRESS_ALLOW: '10.0.0.0/99'
  })
  t.same(said.split('\n'), [
    'PORT must be a whole number from 0 to 65535, but is "70000"',
    'AUTH must be one of on, off, but is "yes"',
    'SWEEP_MS must be a whole number from 10 to 60000, but is "1e3"',
    'LOG_LEVEL must be one of fatal, error, warn, info, debug, trace, silent, but is "loud"',
    'PG_POOL must be a whole number from 2 to 500, but is "1"',
    'ROLE must be some of api, worker, dispatcher, separated by commas, but is "apii"',
    'EGRESS_ALLOW must be CIDRs or host:port, separated by commas, but holds "10.0.0.0/99"'
  ])
})

t.test('a raw % in a password is said, since every client would decode it', async t => {
  t.equal(
    complaint({ DATABASE_URL: 'postgres://u:50%off@db/x', SECRET: secret }),
    'DATABASE_URL has a % that is not percent-encoding: write it as %25'
  )
  t.equal(
    complaint({ REDIS_URL: 'redis://:50%off@cache' }),
    'REDIS_URL has a % that is not percent-encoding: write it as %25'
  )
  t.equal(complaint({ REDIS_URL: 'redis://:50%25off@cache' }), '')
})

t.test(
  'an address that starts well and is no URL is told so, with a right one, and without its password',
  async t => {
    const database =
      'cannot be read as a URL: a right one is like postgres://user:password@host:5432/database;'
    const http = 'cannot be read as a URL: a right one is like http://host:8080/path;'
    const like = 'cannot be read as a URL: a right one is like '
    const wrong: [name: string, value: string, says: string][] = [
      ['DATABASE_URL', 'postgres://localhost:notaport/x', database],
      ['DATABASE_URL', 'postgres://u:hunter2@localhost:70000/x', database],
      ['DATABASE_URL', 'postgresql://u:hunter2/or@localhost/x', database],
      ['DATABASE_URL', 'postgres://u:hunter2@a:5432,b:notaport/x', database],
      ['PUBLIC_URL', 'https://ackbox.example.com:notaport', http],
      ['ALARM_WEBHOOK_URL', 'https://u:hunter2#@alerts.example.com/', http],
      ['OTEL_EXPORTER_OTLP_ENDPOINT', 'http://127.0.0.1:43180000', http],
      [
        'ALARM_CHANNEL_OPS',
        'https://u:hunter2/or@hooks.slack.com/services/x',
        `${like}https://:secret@host/path;`
      ],
      ['ALARM_CHANNEL_OPS', 'smtp://u:hunter2@mail:notaport/?to=a@b.c', `${like}smtp://host:587/?from=`],
      ['ALARM_CHANNEL_OPS', 'localhost/hook', 'must start with https://'],
      ['BROKER_STOCK', 'amqps://u:hunter2/or@mq/orders', `${like}amqps://user:password@host:5671,host:5671;`],
      ['BROKER_STOCK', 'kafka://', `${like}kafka://user:password@host:9092,host:9092;`],
      ['BROKER_STOCK', 'mq:5671', 'must be a URL that starts with amqp://']
    ]
    for (const [name, value, says] of wrong) {
      const said = complaint({ [name]: value, SECRET: secret })
      t.equal(said.split('\n').length, 1, value)
      t.match(said, `${name} ${says}`, value)
      t.notMatch(said, 'hunter2', value)
    }
    t.match(
      complaint({ PUBLIC_URL: 'ftp://x:notaport' }),
      'PUBLIC_URL must be a URL that starts with http://'
    )
    t.equal(complaint({ DATABASE_URL: ' POSTGRES://u@db/x', SECRET: secret }), '')
  }
)

t.test('PUBLIC_URL is what a path can be appended to', async t => {
  for (const url of ['http://h/base?x=1', 'http://h/#f', 'http://u:p@h', 'http://u@h/base', 'http://h/?'])
    t.match(complaint({ PUBLIC_URL: url }), /^PUBLIC_URL must have no user, password, query or fragment/, url)
  t.equal(complaint({ PUBLIC_URL: 'https://ackbox.example.com/base/@x' }), '')
})

t.test('PUBLIC_URL fits into a header, and so does what is taken of it', async t => {
  for (const url of ['http://ackbox\n.example.com', 'http://h/a b', 'http://h/\tb'])
    t.match(complaint({ PUBLIC_URL: url }), /^PUBLIC_URL has a space or a line break inside$/, url)
  for (const [given, read] of [
    [' https://ackbox.example.com/\n', 'https://ackbox.example.com'],
    ['https://bücher.example/', 'https://xn--bcher-kva.example'],
    ['https://ackbox.example.com/任务//', 'https://ackbox.example.com/%E4%BB%BB%E5%8A%A1'],
    ['HTTP://Ackbox:80', 'http://ackbox']
  ] as const)
    t.equal(readConfig({ PUBLIC_URL: given }).publicUrl, read, given)
  t.match(complaint({ ALARM_WEBHOOK_URL: 'http://h/\nb' }), /^ALARM_WEBHOOK_URL has a space/)
})

t.test('a complaint never prints a password', async t => {
  const said = complaint({
    DATABASE_URL: 'mysql://u:hunter2@db/x',
    REDIS_URL: 'hunter2',
    SECRET: 'hunter2',
    SECRET_PREVIOUS: 'hunter2'
  })
  t.equal(said.split('\n').length, 4)
  t.notMatch(said, /hunter2/)
})

t.test('the secret of alarms must be one that every language decodes', async t => {
  const base64 = Buffer.alloc(24, 7).toString('base64')
  const complaintAt = (text: string) => complaint({ ALARM_WEBHOOK_SECRET: `whsec_${text}` })
  t.notMatch(complaintAt(base64), /ALARM_WEBHOOK_SECRET/)
  for (const wrong of [`${base64}A`, `${base64}=`, base64.slice(4)])
    t.match(complaintAt(wrong), /^ALARM_WEBHOOK_SECRET must be whsec_ and base64 of 24 bytes or more/m)
})

t.test('a name one or two letters from ours is said, the names of others are not', async t => {
  const { warnings } = readConfig({
    DATABSE_URL: databaseUrl,
    REDISURL: 'redis://x',
    sweep_ms: '5',
    ROLES: 'api'
  })
  t.same(warnings, [
    'Unknown setting DATABSE_URL. Did you mean DATABASE_URL?',
    'Unknown setting REDISURL. Did you mean REDIS_URL?',
    'Unknown setting sweep_ms. Did you mean SWEEP_MS?',
    'Unknown setting ROLES. Did you mean ROLE?'
  ])
  const others = [
    'HOME',
    'PATH',
    'USER',
    'PWD',
    'LANG',
    'NODE',
    'HOSTNAME',
    'PGHOST',
    'PGPORT',
    'REDIS_HOST',
    'REDIS_PORT',
    'POSTGRES_URL',
    'HTTP_PROXY',
    'EDITOR',
    'TERM',
    'SHELL',
    'CI',
    'TZ'
  ]
  t.same(readConfig(Object.fromEntries(others.map(name => [name, 'x']))).warnings, [])
})

t.test('addresses that downstreams may have are a list, and an empty list is a list', async t => {
  t.same(readConfig({ EGRESS_ALLOW: '' }).egressAllow, [])
  t.same(
    readConfig({ EGRESS_ALLOW: '10.2.0.0/16, shop.internal:8080,[::1]:99,10.9.9.9,fd00::1' }).egressAllow,
    ['10.2.0.0/16', 'shop.internal:8080', '[::1]:99', '10.9.9.9/32', 'fd00::1/128']
  )
  for (const bad of [
    '10.0.0.0/33',
    'shop.internal',
    'shop:0',
    'shop:65536',
    '10.0.0.0/8/8',
    '::/129',
    '10.0.0/8',
    'a/8'
  ]) {
    t.match(complaint({ EGRESS_ALLOW: bad }), /EGRESS_ALLOW must be/, bad)
  }
})

t.test(
  'the variables that Kubernetes makes of Services are no brokers, channels or misspelt settings',
  async t => {
    const links = (service: string): Record<string, string> => ({
      [`${service}_SERVICE_HOST`]: '10.0.0.5',
      [`${service}_SERVICE_PORT`]: '9092',
      [`${service}_SERVICE_PORT_CLIENT_9092`]: '9092',
      [`${service}_PORT`]: 'tcp://10.0.0.5:9092',
      [`${service}_PORT_9092_TCP`]: 'tcp://10.0.0.5:9092',
      [`${service}_PORT_9092_TCP_PROTO`]: 'tcp',
      [`${service}_PORT_9092_TCP_PORT`]: '9092',
      [`${service}_PORT_9092_TCP_ADDR`]: 'fd00::5'
    })
    const services = ['BROKER', 'BROKER_KAFKA', 'ALARM_CHANNEL', 'ALARM_CHANNEL_CHAT', 'ACKBOX', 'PG']
    const config = readConfig({
      ...Object.assign({}, ...services.map(links)),
      BROKER_KAFKA: 'kafka://10.0.0.5:9092'
    })
    t.same([...config.brokers.keys()], ['kafka'])
    t.same(config.alarmChannels, [])
    t.same(config.warnings, [])
    t.match(complaint({ BROKER_PORT: '10.0.0.5:9092' }), /^BROKER_PORT must/, 'this is none of them')
    t.match(complaint({ BROKER_X: 'tcp://10.0.0.5:9092' }), /^BROKER_X must/)
  }
)

t.test('a compose file that passes NAME= sets nothing', async t => {
  t.match(readConfig({ REDIS_URL: '', PORT: '', SECRET: '' }), { port: 3000, embedded: true })
})

t.test('downstreams are told an address that can be reached', async t => {
  t.equal(
    readConfig({ PUBLIC_URL: 'https://ackbox.example.com/in/' }).publicUrl,
    'https://ackbox.example.com/in'
  )
  t.equal(readConfig({ HOST: '::1', PORT: '8080' }).publicUrl, 'http://[::1]:8080')
  const everywhere = readConfig({ HOST: '0.0.0.0' })
  t.equal(everywhere.publicUrl, 'http://127.0.0.1:3000')
  t.match(everywhere.warnings, only(/^PUBLIC_URL is not set/))
})

t.test('the proxy in front is believed only as far as it was named', async t => {
  t.equal(readConfig({ TRUST_PROXY: 'on' }).trustProxy, 1, 'the nearest proxy, not whatever the caller says')
  t.equal(readConfig({ TRUST_PROXY: '2' }).trustProxy, 2)
  t.equal(readConfig({ TRUST_PROXY: '0' }).trustProxy, false)
  t.equal(readConfig({ TRUST_PROXY: '10.0.0.0/8,127.0.0.1' }).trustProxy, '10.0.0.0/8,127.0.0.1')
  t.match(complaint({ TRUST_PROXY: 'yes' }), /TRUST_PROXY must be/)
})

t.test('brokers come one by one or as JSON; the one variable goes over it', t => {
  const { brokers, receiptsFrom } = readConfig({
    BROKERS_JSON: '{"kafka":"kafka://old","stock-events":"nats://n1,n2"}',
    BROKER_KAFKA: 'kafka://new:1',
    BROKER_UNSET: '',
    RECEIPTS_FROM: 'stock-events, kafka'
  })
  t.match(brokers.get('kafka'), { scheme: 'kafka', hosts: only({ host: 'new', port: 1 }) })
  t.same([...brokers.keys()].toSorted(), ['kafka', 'stock-events'])
  t.same(
    receiptsFrom.map(each => each.name),
    ['stock-events', 'kafka']
  )
  t.end()
})

t.test('a wrong broker is said by name, and its URL is not repeated', t => {
  const wrong = {
    BROKERS_JSON: '{"a":"kafka:/hunter2","B":"kafka://h","c":7}',
    BROKER_X: 'http://u:hunter2@h',
    BROKER_9: 'kafka://h',
    BROKER_R: 'dubbo://h',
    RECEIPTS_FROM: 'nobody,r'
  }
  const said = complaint(wrong).split('\n')
  t.equal(said.length, 7)
  t.match(
    said.join(' '),
    /BROKERS_JSON: a must.*BROKERS_JSON: "B" must.*BROKERS_JSON: c must.*BROKER_X must.*BROKER_9 names/s
  )
  t.match(
    said.join(' '),
    /RECEIPTS_FROM names nobody, which is not a broker: set BROKER_NOBODY.*RECEIPTS_FROM names r/s
  )
  t.notMatch(said.join(' '), 'hunter2')
  t.match(complaint({ BROKERS_JSON: '[]' }), 'BROKERS_JSON must be a JSON object')
  t.match(complaint({ BROKERS_JSON: '{' }), 'BROKERS_JSON must be a JSON object')
  t.end()
})

t.test('AUTH=on beside handlers of its own makes no demo key that nobody asked for', async t => {
  const keeps = (env: Record<string, string>) => readConfig({ AUTH: 'on', ...env }).demoKey
  t.equal(keeps({}), true, 'the samples need it')
  t.equal(keeps({ HANDLERS_DIR: './handlers' }), false)
  t.equal(keeps({ HANDLERS_DIR: './handlers', DEMO: 'on' }), true)
  t.equal(keeps({ DEMO: 'off' }), false)
  t.equal(keeps({ AUTH: 'off' }), false)
})
