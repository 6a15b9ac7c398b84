import t from 'tap'
import { readConfig, type Config } from '../../src/service/config.ts'
import { checks } from '../../src/cli/doctor/checks.ts'
import type { Finding } from '../../src/cli/doctor/finding.ts'
import type { Holder } from '../../src/cli/doctor/holders.ts'
import type { Facts, PostgresFacts } from '../../src/cli/doctor/look.ts'
import type { RedisFacts } from '../../src/cli/doctor/redis.ts'

const secret = 'q8Zt2Lw7Vb4Nc1Xm9Kd6Hs3Jf5Gp0RyT'
const operated = readConfig({
  DATABASE_URL: 'postgres://db/ackbox',
  REDIS_URL: 'redis://redis',
  SECRET: secret,
  PUBLIC_URL: 'https://ackbox.example.com'
})
const postgres: PostgresFacts = {
  version: '17.2',
  roundTripMs: 1,
  clockAheadMs: 3,
  settings: {
    fsync: 'on',
    full_page_writes: 'on',
    synchronous_commit: 'on',
    autovacuum: 'on',
    max_connections: '100'
  },
  connections: 4,
  held: { holders: [], hidden: 0 },
  pending: [],
  keys: 1,
  forbidden: [],
  foreign: [],
  partitions: { daysAhead: 8, blockedBy: [] },
  outbox: { waiting: 0, oldestMs: 0, rejected: 0 },
  roles: ['api', 'worker', 'dispatcher'],
  nodes: []
}
const redis: RedisFacts = { version: '7.4.1', roundTripMs: 1, evictionPolicy: 'noeviction', appendOnly: true }
const sound: Facts = {
  postgres,
  redis,
  handlers: { codes: 3, downstreams: 5, missing: [], named: [] },
  targets: [{ of: 'a.ts', name: 'WAREHOUSE_URL', refused: undefined }],
  besideQueue: [],
  missingPackages: []
}

/** The findings that are not OK, by the name of the check. */
function complaints(looked: Partial<Facts>, config: Partial<Config> = {}): Record<string, Finding> {
  const findings = checks.map(
    ({ name, look }) => [name, look({ ...sound, ...looked }, { ...operated, ...config })] as const
  )
  return Object.fromEntries(
    findings.flatMap(([name, found]) => (found && found.level !== 'ok' ? [[name, found]] : []))
  )
}

t.test('a sound setup hears OK from every check, and every check speaks', async t => {
  t.same(complaints({}), {})
  t.ok(checks.every(({ look }) => look(sound, operated) !== undefined))
})

t.test(
  'the connections of a process are those of its pool, one for its beats and, unless it is a mere worker, those it reads by',
  async t => {
    const taken = { postgres: { ...postgres, connections: 88 } }
    t.match(complaints(taken)['PostgreSQL connections'], { level: 'warn', found: /one process takes 15/ })
    for (const role of ['api', 'dispatcher'] as const)
      t.ok(complaints(taken, { roles: new Set([role]) })['PostgreSQL connections'], role)
    t.notOk(complaints(taken, { roles: new Set(['worker']) })['PostgreSQL connections'])
  }
)

t.test('every complaint comes with the line that fixes it', async t => {
  const ill: Facts = {
    postgres: {
      ...postgres,
      settings: { transaction_timeout: '5000' },
      connections: 99,
      held: {
        holders: [
          { kind: 'transaction', name: '7', user: 'dump', seconds: 999, detail: 'COPY task' },
          { kind: 'slot', name: 'old', user: 'logical pgoutput', seconds: null, detail: '3 GB of WAL' }
        ],
        hidden: 0
      },
      pending: ['0000_a'],
      keys: 0,
      forbidden: ['delivery'],
      foreign: [{ isThere: false, found: 'every role may create', remedy: 'revoke it' }],
      partitions: { daysAhead: 0, blockedBy: [] },
      outbox: { waiting: 3, oldestMs: 90_000, rejected: 2 },
      nodes: [],
      roles: ['api'],
      clockAheadMs: -90_000
    },
    redis: { version: '5.0.7', roundTripMs: 1, evictionPolicy: 'allkeys-lru', appendOnly: false },
    handlers: { codes: 0, downstreams: 0, missing: ['no broker: set one'], named: [] },
    targets: [{ of: 'a.ts', name: 'WAREHOUSE_URL', refused: 'blocked_target: it is far away' }],
    besideQueue: ['BROKER_STREAMS'],
    missingPackages: ['tracing needs packages: npm install them']
  }
  const found = Object.values(
    complaints(ill, { secret: 'x'.repeat(40), publicUrl: 'http://10.0.0.1', warnings: ['odd'] })
  )
  t.ok(found.length >= checks.length - 2, `${found.length} of ${checks.length} complain`)
  t.ok(found.every(({ remedy }) => remedy !== undefined && remedy !== ''))
})

t.test(
  'what can lose an acknowledged task is to be fixed, what only costs time is to be considered',
  async t => {
    const levels = (looked: Partial<Facts>) => Object.values(complaints(looked)).map(({ level }) => level)
    for (const setting of ['fsync', 'full_page_writes', 'synchronous_commit']) {
      t.same(
        levels({ postgres: { ...postgres, settings: { ...postgres.settings, [setting]: 'off' } } }),
        ['fix'],
        setting
      )
    }
    t.same(levels({ redis: { ...redis, appendOnly: false } }), ['warn'])
  }
)

t.test('whoever keeps dead rows is named, the oldest three, with what ends the first', async t => {
  const holder = (name: string, seconds: number) =>
    ({ kind: 'transaction', name, user: 'dump', seconds, detail: 'COPY public.task' }) as const
  const of = (...holders: Holder[]) => complaints({ postgres: { ...postgres, held: { holders, hidden: 0 } } })
  t.match(of(holder('42', 780))['PostgreSQL transactions'], {
    level: 'warn',
    found: 'dead rows of our tables are kept by pid 42 of dump for 13 min: COPY public.task',
    remedy: 'select pg_terminate_backend(42)'
  })
  t.match(of(...['1', '2', '3', '4', '5'].map(name => holder(name, 9_000)))['PostgreSQL transactions'], {
    found: /by pid 1 of dump for 2 h: .*; pid 2 .*; pid 3 .*; and 2 more$/
  })
  t.match(of({ kind: 'prepared', name: "it's", user: 'shop', seconds: 400, detail: '' }), {
    'PostgreSQL transactions': { remedy: "rollback prepared 'it''s', or commit prepared" }
  })
  t.match(
    of({ kind: 'standby', name: 'far', user: 'r', seconds: null, detail: 'dead rows of 9 transactions' }),
    {
      'PostgreSQL replication': { found: 'kept for queries on the standby far: dead rows of 9 transactions' }
    }
  )
  const seen = checks.find(({ name }) => name === 'PostgreSQL transactions')
  t.match(seen?.look({ ...sound, postgres: { ...postgres, held: { holders: [], hidden: 3 } } }, operated), {
    level: 'ok',
    found: /3 sessions of other users cannot be seen \(grant pg_read_all_stats\)/
  })
})

t.test('a secret that a person typed is refused, one from a random source is not', async t => {
  for (const guessable of [
    'a'.repeat(32),
    'abcdefghijkl'.repeat(3),
    'please-change-me-please-change-me',
    'my-password-1234567890-abcdefghij'
  ]) {
    t.match(complaints({}, { secret: guessable }), { SECRET: { level: 'fix' } }, guessable)
  }
  t.same(complaints({}, { secret: '3b1e9c7a5d2f4860b7e1c9d3a5f20846' }), {}, 'hex')
  t.match(complaints({}, { secretPrevious: secret }), { SECRET: { level: 'warn' } })
})

t.test('a database that cannot be asked is one complaint, not ten', async t => {
  const found = complaints({ postgres: { error: 'connect ECONNREFUSED 127.0.0.1:5432' } })
  t.same(Object.keys(found), ['PostgreSQL'])
  t.match(found.PostgreSQL?.found, /ECONNREFUSED/)
})

t.test('without Redis nothing about Redis is asked for', async t => {
  t.same(complaints({ redis: undefined }), {})
  t.match(complaints({ redis: { ...redis, version: '6.0.16' } }), { Redis: { level: 'fix' } })
  t.same(complaints({ redis: { ...redis, version: '6.2.0' } }), {})
})

t.test('a clock that is off is a warning: signatures and schedules have the time of PostgreSQL', async t => {
  const clock = (clockAheadMs: number) => complaints({ postgres: { ...postgres, clockAheadMs } }).Clock?.level
  t.same([500, -2_000, 30_000, 61_000, -3_600_000].map(clock), [undefined, 'warn', 'warn', 'warn', 'warn'])
})

t.test('an embedded setup brings its tables up to date by itself', async t => {
  const pending = { postgres: { ...postgres, pending: ['0000_a'] } }
  t.match(complaints(pending), { Migrations: { level: 'fix', remedy: 'npm run migrate' } })
  t.same(complaints(pending, { embedded: true }), {})
})

t.test('too few days ahead, or old ones that somebody keeps, are told', async t => {
  const of = (partitions: PostgresFacts['partitions']) =>
    complaints({ postgres: { ...postgres, partitions } })['Partitions']
  t.equal(of(undefined), undefined)
  t.equal(of({ daysAhead: 2, blockedBy: [] }), undefined)
  t.match(of({ daysAhead: 1, blockedBy: [] }), {
    level: 'warn',
    found: /for 1 days ahead/,
    remedy: /ROLE=dispatcher/
  })
  const blockedBy = [{ pid: 71, application: 'pg_dump', seconds: 900 }]
  t.match(of({ daysAhead: 8, blockedBy }), {
    level: 'warn',
    found: /pid 71 \(pg_dump\) .* 900 s/,
    remedy: 'select pg_terminate_backend(71)'
  })
})
