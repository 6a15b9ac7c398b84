// The checks of a setup. Each is a pure function of the facts that look.ts collected. It returns a finding, with the remedy
// if something is wrong.
import { roles, type Config, type Role } from '../../service/config.ts'
import { readConnections } from '../../db/pool.ts'
import { commandLine } from '../../runtime/package.ts'
import { counted } from '../arguments.ts'
import { heldBack } from './holders.ts'
import type { Facts, PostgresFacts } from './look.ts'
import { fix, ok, warn, type Finding } from './finding.ts'
import { judgeOutbox } from './outbox.ts'
import { judgePartitions } from './partitions.ts'
import { judgeProcesses } from './processes.ts'
import type { RedisFacts } from './redis.ts'
import { judgeForeign, judgeTransactionTimeout } from './sessions.ts'
import type { CheckedTarget } from './targets.ts'

export interface Check {
  name: string
  /** Undefined: the part is not used, or is unreachable. */
  look: (looked: Facts, config: Config) => Finding | undefined
}

const ofPostgres = (name: string, look: (facts: PostgresFacts, config: Config) => Finding): Check => ({
  name,
  look: ({ postgres }, config) => ('error' in postgres ? undefined : look(postgres, config))
})
const ofRedis = (name: string, look: (facts: RedisFacts) => Finding): Check => ({
  name,
  look: ({ redis }) => (redis === undefined || 'error' in redis ? undefined : look(redis))
})

const without: Record<Role, string> = {
  api: 'no tasks are accepted',
  worker: 'nothing is delivered',
  dispatcher: 'scheduled tasks, retries and SQL-enqueued tasks wait'
}

/** Settings of PostgreSQL that make a commit durable. */
const durable = (setting: 'fsync' | 'full_page_writes'): Check =>
  ofPostgres(`PostgreSQL ${setting}`, ({ settings }) => {
    if (settings[setting] === 'on') return ok('on')
    const remedy = `alter system set ${setting} = on; select pg_reload_conf();`
    return fix('off: a crash of the machine may lose or corrupt acknowledged tasks', remedy)
  })

export const checks: Check[] = [
  {
    name: 'Settings',
    look: (_, { warnings }) =>
      warnings.length === 0
        ? ok('every value is in its range')
        : warn(warnings.join('; '), 'see docs/config.md')
  },
  {
    name: 'SECRET',
    look: (_, { secret, secretPrevious, embedded }) => {
      const make =
        'SECRET=$(openssl rand -base64 32), the same in every process. To replace one: "Rotate SECRET" in docs/operations.md'
      if (secret === undefined) return embedded ? ok('generated, kept in DATA_DIR') : fix('not set', make)
      if (isGuessable(secret)) return fix('too regular: it is easy to guess', make)
      if (secret === secretPrevious)
        return warn('SECRET_PREVIOUS has the same value: nothing is rotated', 'unset SECRET_PREVIOUS')
      return ok(`${secret.length} characters`)
    }
  },
  {
    name: 'PostgreSQL',
    look: ({ postgres }) => {
      if ('error' in postgres && postgres.isToCome) return ok(postgres.error)
      if ('error' in postgres)
        return fix(`cannot be used: ${postgres.error}`, 'check DATABASE_URL, and that the server runs')
      return ok(`version ${postgres.version}, answers in ${postgres.roundTripMs.toFixed(1)} ms`)
    }
  },
  durable('fsync'),
  durable('full_page_writes'),
  ofPostgres('PostgreSQL synchronous_commit', ({ settings }) => {
    if (settings.synchronous_commit === 'on') return ok('on in our connections')
    return fix(
      `${settings.synchronous_commit} in our connections: a crash may lose acknowledged tasks`,
      'connect without a pooler that drops the parameters of our connections'
    )
  }),
  ofPostgres('PostgreSQL autovacuum', ({ settings }) =>
    settings.autovacuum === 'on'
      ? ok('on')
      : fix(
          'off: the tables of tasks and deliveries grow and slow down',
          'alter system set autovacuum = on; select pg_reload_conf();'
        )
  ),
  ofPostgres('PostgreSQL connections', ({ settings, connections }, config) => {
    const most = Number(settings.max_connections)
    const hasReads = config.roles.has('api') || config.roles.has('dispatcher')
    const own = config.pgPool + 1 + (hasReads ? readConnections : 0)
    const found = `${connections} of ${most} in use, one process takes ${own}`
    if (most - connections > own) return ok(found)
    return warn(`${found}: one more process may get no connection`, 'raise max_connections, or lower PG_POOL')
  }),
  ofPostgres('PostgreSQL transactions', ({ held }) => {
    const found = heldBack(held, ['transaction', 'prepared'])
    if (found) return warn(`dead rows of our tables are kept by ${found.found}`, found.remedy)
    const unseen = `; ${held.hidden} sessions of other users cannot be seen (grant pg_read_all_stats)`
    return ok(`none has kept dead rows for 5 minutes${held.hidden > 0 ? unseen : ''}`)
  }),
  ofPostgres('PostgreSQL replication', ({ held }) => {
    const found = heldBack(held, ['slot', 'standby'])
    return found
      ? warn(`kept for ${found.found}`, found.remedy)
      : ok('no slot or standby keeps old rows or WAL')
  }),
  ofPostgres('Migrations', ({ pending }, { embedded }) => {
    if (pending.length === 0) return ok('all applied')
    if (embedded) return ok(`${pending.length} to apply at the next start`)
    return fix(`${pending.length} to apply: ${pending.join(', ')}`, commandLine('migrate'))
  }),
  ofPostgres('Partitions', ({ partitions }) => judgePartitions(partitions)),
  ofPostgres('PostgreSQL rights', ({ forbidden }) => {
    if (forbidden.length === 0) return ok('this user may read and write our tables')
    return fix(
      `this user may not read and write ${forbidden.join(', ')}`,
      'as their owner: grant select, insert, update, delete on all tables in schema public to USER; grant usage on all sequences in schema public to USER;'
    )
  }),
  ofPostgres('PostgreSQL transaction_timeout', ({ settings }) =>
    judgeTransactionTimeout(settings.transaction_timeout)
  ),
  ofPostgres('PostgreSQL schemas', ({ foreign }) => judgeForeign(foreign)),
  ofPostgres('Roles', ({ roles: alive }) => {
    if (alive.length === 0) return ok('no process runs now')
    const missing = roles.filter(role => !alive.includes(role))
    if (missing.length === 0) return ok('api, worker and dispatcher run')
    return warn(
      `no running process has the role ${missing.join(' or ')}: ${missing.map(role => without[role]).join(', ')}`,
      `start a process with ROLE=${missing.join()}`
    )
  }),
  {
    name: 'Processes',
    look: ({ postgres, handlers }) =>
      'error' in postgres
        ? undefined
        : judgeProcesses(postgres.nodes, 'error' in handlers ? undefined : handlers.facts)
  },
  ofPostgres('Outbox', ({ outbox }) => judgeOutbox(outbox)),
  ofPostgres('API keys', ({ keys }, { auth }) => {
    if (!auth) return ok('not needed: AUTH is off, on a loopback HOST')
    if (keys === undefined || keys > 0) return ok(keys === undefined ? 'no tables yet' : `${keys} in use`)
    return warn('no keys: every request is answered 401', commandLine('key create NAME --scopes tasks:write'))
  }),
  ofPostgres('Clock', ({ clockAheadMs, roundTripMs }) => {
    const seconds = (Math.abs(clockAheadMs) / 1000).toFixed(1)
    if (Math.abs(clockAheadMs) < 1000 + roundTripMs) return ok('agrees with the clock of PostgreSQL')
    const found = `${seconds} s ${clockAheadMs > 0 ? 'ahead of' : 'behind'} the clock of PostgreSQL`
    // Schedules and signatures have the time of PostgreSQL.
    return warn(found, 'synchronise the clocks of both machines (timedatectl set-ntp true)')
  }),
  {
    name: 'Redis',
    look: ({ redis }) => {
      if (redis === undefined) return ok('not used: BullMQ is on PostgreSQL')
      if ('error' in redis)
        return fix(
          `cannot be used: ${redis.error}`,
          'check REDIS_URL, and that the server runs; or unset REDIS_URL'
        )
      if (isOlder(redis.version, [6, 2]))
        return fix(`version ${redis.version} is too old`, 'use Redis 6.2 or newer')
      return ok(`version ${redis.version}, answers in ${redis.roundTripMs.toFixed(1)} ms`)
    }
  },
  ofRedis('Redis eviction', ({ evictionPolicy }) => {
    if (evictionPolicy === undefined)
      return warn('unknown: this server does not report it', 'make sure that maxmemory-policy is noeviction')
    if (evictionPolicy === 'noeviction') return ok('noeviction')
    return fix(
      `${evictionPolicy}: a full Redis deletes jobs, and their tasks wait until the lease ends`,
      'redis-cli config set maxmemory-policy noeviction; redis-cli config rewrite'
    )
  }),
  ofRedis('Redis persistence', ({ appendOnly }) => {
    if (appendOnly) return ok('append-only file')
    return warn(
      'no append-only file: a restart deletes jobs, and their tasks wait until the lease ends. No task is lost',
      'redis-cli config set appendonly yes; redis-cli config rewrite'
    )
  }),
  {
    name: 'Handlers',
    look: ({ handlers }) => {
      if ('error' in handlers)
        return fix(handlers.error.split('\n')[0]?.replace(/:$/, '') ?? '', commandLine('handlers'))
      if (handlers.codes === 0)
        return warn('no handlers: every task is refused', 'add a handler to handlers/ or HANDLERS_DIR')
      return ok(`${counted(handlers.codes, 'message code')}, ${counted(handlers.downstreams, 'downstream')}`)
    }
  },
  {
    name: 'Transports',
    look: ({ handlers }) => {
      if ('error' in handlers) return undefined
      if (handlers.missing.length === 0) return ok('every broker and package that the handlers need is there')
      return fix(handlers.missing.join('; '), commandLine('handlers'))
    }
  },
  {
    name: 'Packages',
    look: ({ missingPackages }) =>
      missingPackages.length === 0
        ? ok('every package that alarm channels, RECEIPTS_FROM and tracing need is there')
        : fix(missingPackages.join('; '), `install them, then run ${commandLine('doctor')} again`)
  },
  {
    name: 'EGRESS_ALLOW',
    look: ({ targets }, { egressAllow }) => {
      const refused = targets.filter(target => target.refused !== undefined)
      if (targets.length === 0)
        return ok(
          `no target of a handler is known before a send: check one with ${commandLine('handlers --dry-run')}`
        )
      if (refused.length === 0) return ok(`${counted(targets.length, 'target')}, none of them is blocked`)
      const found = refused.map(target => `${target.of}: ${whyOf(target)}`).join('; ')
      const isLost = (one: CheckedTarget) =>
        targets.every(({ of, refused: why }) => of !== one.of || why !== undefined)
      const say = refused.some(isLost) ? fix : warn
      return say(found, toAllow(refused, egressAllow))
    }
  },
  {
    name: 'Brokers',
    look: ({ besideQueue }, { brokers }) => {
      if (besideQueue.length === 0) return ok(`${brokers.size}, none of them is the server of REDIS_URL`)
      return warn(
        `${besideQueue.join(', ')}: the server of REDIS_URL; streams that fill its memory stop the queue`,
        'give the queue a Redis of its own'
      )
    }
  },
  {
    name: 'PUBLIC_URL',
    look: (_, { publicUrl, embedded }) => {
      const { hostname, protocol } = new URL(publicUrl)
      if (/^(localhost|127\..*|\[::1\])$/.test(hostname)) {
        if (embedded) return ok(`${publicUrl}, for downstreams on this machine`)
        return warn(
          `${publicUrl}: only downstreams on this machine can send receipts`,
          'PUBLIC_URL=https://…'
        )
      }
      if (protocol === 'http:')
        return warn(`${publicUrl}: callback tokens travel in clear text`, 'put a TLS proxy in front')
      return ok(publicUrl)
    }
  }
]

const advice = / to allow it (?:set EGRESS_ALLOW=|add )(\S+)/

const whyOf = ({ name, refused = '' }: CheckedTarget): string =>
  `${name}: ${refused.replace('blocked_target: ', '').replace(/; to allow it .*$/, '')}`

/** The complete new value of EGRESS_ALLOW, including its present entries. */
function toAllow(refused: CheckedTarget[], egressAllow: string[] = []): string {
  const entries = refused.flatMap(target => advice.exec(target.refused ?? '')?.[1] ?? [])
  if (entries.length === 0) return 'send to another server'
  return `EGRESS_ALLOW=${[...new Set([...egressAllow, ...entries])].join(',')}, if that is intended`
}

/** True: few different characters, a repeated piece or a well-known word show that the secret is not random. */
function isGuessable(secret: string): boolean {
  if (new Set(secret).size < 10) return true
  return /^(.{1,16}?)\1+$/s.test(secret) || /change.?me|password|your.?secret|example/i.test(secret)
}

function isOlder(version: string, [major, minor]: [number, number]): boolean {
  const [ours = 0, oursMinor = 0] = version.split('.').map(Number)
  return ours < major || (ours === major && oursMinor < minor)
}
