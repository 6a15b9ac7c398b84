// What makes a setup sound, one check after the other. A check is a pure function of what was looked up: it says what it
// found, and when that is not well, the line that fixes it.
import { roles, type Config, type Role } from '../../service/config.ts'
import { readConnections } from '../../db/pool.ts'
import { commandLine } from '../../runtime/package.ts'
import type { Looked, PostgresFacts, RedisFacts } from './look.ts'

/** `fix`: it breaks a promise, or nothing runs. `warn`: it works, with a drawback that is said. */
export interface Finding {
  level: 'ok' | 'warn' | 'fix'
  found: string
  remedy?: string
}
export interface Check {
  name: string
  /** Undefined: nothing to say here, since the part is not used or could not be asked. */
  look: (looked: Looked, config: Config) => Finding | undefined
}

const ok = (found: string): Finding => ({ level: 'ok', found })
const warn = (found: string, remedy: string): Finding => ({ level: 'warn', found, remedy })
const fix = (found: string, remedy: string): Finding => ({ level: 'fix', found, remedy })

const ofPostgres = (name: string, look: (facts: PostgresFacts, config: Config) => Finding): Check => ({
  name,
  look: ({ postgres }, config) => ('error' in postgres ? undefined : look(postgres, config))
})
const ofRedis = (name: string, look: (facts: RedisFacts) => Finding): Check => ({
  name,
  look: ({ redis }) => (redis === undefined || 'error' in redis ? undefined : look(redis))
})

const without: Record<Role, string> = {
  api: 'nobody takes tasks',
  worker: 'nothing is delivered',
  dispatcher: 'what is due later or again waits'
}

/** Settings of PostgreSQL that a committed task hangs on. */
const durable = (setting: 'fsync' | 'full_page_writes'): Check =>
  ofPostgres(`PostgreSQL ${setting}`, ({ settings }) => {
    if (settings[setting] === 'on') return ok('on')
    const remedy = `alter system set ${setting} = on; select pg_reload_conf();`
    return fix('off: a crash of the machine may lose or break what was acknowledged', remedy)
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
        'SECRET=$(openssl rand -base64 32), the same in every process; the former goes to SECRET_PREVIOUS'
      if (secret === undefined)
        return embedded ? ok('made by itself, kept in DATA_DIR') : fix('not set', make)
      if (isGuessable(secret)) return fix('too regular: it can be guessed', make)
      if (secret === secretPrevious)
        return warn('SECRET_PREVIOUS is the same: nothing is rotated', 'unset SECRET_PREVIOUS')
      return ok(`${secret.length} characters`)
    }
  },
  {
    name: 'PostgreSQL',
    look: ({ postgres }) => {
      if ('error' in postgres)
        return fix(`cannot be used: ${postgres.error}`, 'check DATABASE_URL, and that it runs')
      return ok(`version ${postgres.version}, answers in ${postgres.roundTripMs.toFixed(1)} ms`)
    }
  },
  durable('fsync'),
  durable('full_page_writes'),
  ofPostgres('PostgreSQL synchronous_commit', ({ settings }) => {
    if (settings.synchronous_commit === 'on') return ok('on in our connections')
    return fix(
      `${settings.synchronous_commit} in our connections: a crash may lose acknowledged tasks`,
      'let nothing between us and PostgreSQL (a pooler) drop the parameters of our connections'
    )
  }),
  ofPostgres('PostgreSQL autovacuum', ({ settings }) =>
    settings.autovacuum === 'on'
      ? ok('on')
      : fix(
          'off: hot tables grow and slow down',
          'alter system set autovacuum = on; select pg_reload_conf();'
        )
  ),
  ofPostgres('PostgreSQL connections', ({ settings, connections }, config) => {
    const most = Number(settings.max_connections)
    const own = config.pgPool + (config.roles.has('api') ? readConnections : 0)
    const found = `${connections} of ${most} in use, one process takes ${own}`
    if (most - connections > own) return ok(found)
    return warn(`${found}: one more process may find none`, 'raise max_connections, or lower PG_POOL')
  }),
  ofPostgres('PostgreSQL transactions', ({ oldestTransactionS }) => {
    if (oldestTransactionS < 3600) return ok('none is older than an hour')
    return warn(
      `one is open for ${Math.round(oldestTransactionS / 3600)} h: vacuum cannot clean our tables`,
      'select pid, usename, query from pg_stat_activity order by xact_start limit 1; then pg_terminate_backend(pid)'
    )
  }),
  ofPostgres('Migrations', ({ pending }, { embedded }) => {
    if (pending.length === 0) return ok('all applied')
    if (embedded) return ok(`${pending.length} to apply at the next start`)
    return fix(`${pending.length} to apply: ${pending.join(', ')}`, commandLine('migrate'))
  }),
  ofPostgres('PostgreSQL rights', ({ forbidden }) => {
    if (forbidden.length === 0) return ok('this user may read and write our tables')
    return fix(
      `this user may not read and write ${forbidden.join(', ')}`,
      'as their owner: grant select, insert, update, delete on all tables in schema public to USER; grant usage on all sequences in schema public to USER;'
    )
  }),
  ofPostgres('Roles', ({ roles: alive }) => {
    if (alive.length === 0) return ok('no process lives now')
    const missing = roles.filter(role => !alive.includes(role))
    if (missing.length === 0) return ok('api, worker and dispatcher live')
    return warn(
      `of the processes that live none is ${missing.join(' or ')}: ${missing.map(role => without[role]).join(', ')}`,
      `start one with ROLE=${missing.join()}`
    )
  }),
  ofPostgres('API keys', ({ keys }, { auth }) => {
    if (!auth) return ok('not asked for: AUTH is off, on a loopback HOST')
    if (keys === undefined || keys > 0) return ok(keys === undefined ? 'no tables yet' : `${keys} in use`)
    return warn(
      'there is none: every request is answered 401',
      commandLine('key create NAME --scopes tasks:write')
    )
  }),
  ofPostgres('Clock', ({ clockAheadMs, roundTripMs }) => {
    const seconds = (Math.abs(clockAheadMs) / 1000).toFixed(1)
    if (Math.abs(clockAheadMs) < 1000 + roundTripMs) return ok('agrees with that of PostgreSQL')
    const found = `${seconds} s ${clockAheadMs > 0 ? 'ahead of' : 'behind'} that of PostgreSQL`
    // Schedules go by PostgreSQL's clock alone, but signatures carry ours and verifiers allow five minutes.
    const remedy = 'synchronise the clocks of both machines (timedatectl set-ntp true)'
    return Math.abs(clockAheadMs) > 60_000
      ? fix(`${found}: downstreams may refuse our signatures`, remedy)
      : warn(found, remedy)
  }),
  {
    name: 'Redis',
    look: ({ redis }) => {
      if (redis === undefined) return ok('not used: BullMQ is on PostgreSQL')
      if ('error' in redis)
        return fix(`cannot be used: ${redis.error}`, 'check REDIS_URL, and that it runs; or unset it')
      if (isOlder(redis.version, [6, 2]))
        return fix(`version ${redis.version} is too old`, 'use Redis 6.2 or newer')
      return ok(`version ${redis.version}, answers in ${redis.roundTripMs.toFixed(1)} ms`)
    }
  },
  ofRedis('Redis eviction', ({ evictionPolicy }) => {
    if (evictionPolicy === undefined)
      return warn('this server does not say', 'make sure that it is noeviction')
    if (evictionPolicy === 'noeviction') return ok('noeviction')
    return fix(
      `${evictionPolicy}: when memory is short hints vanish and tasks wait for their lease`,
      'redis-cli config set maxmemory-policy noeviction; redis-cli config rewrite'
    )
  }),
  ofRedis('Redis persistence', ({ appendOnly }) => {
    if (appendOnly) return ok('append-only file')
    return warn(
      'no append-only file: after a restart hints are gone and their tasks wait for their lease; none is lost',
      'redis-cli config set appendonly yes; redis-cli config rewrite'
    )
  }),
  {
    name: 'Handlers',
    look: ({ handlers }) => {
      if ('error' in handlers)
        return fix(handlers.error.split('\n')[0]?.replace(/:$/, '') ?? '', commandLine('handlers'))
      if (handlers.codes === 0)
        return warn('there are none: every task is refused', 'add one to handlers/ or HANDLERS_DIR')
      return ok(`${handlers.codes} message codes, ${handlers.downstreams} downstreams`)
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
        return warn(`${publicUrl}: tokens of receipts travel in clear text`, 'put TLS in front')
      return ok(publicUrl)
    }
  }
]

/** Few different characters, or one short piece again and again: nothing that came from a random source. */
function isGuessable(secret: string): boolean {
  if (new Set(secret).size < 10) return true
  return /^(.{1,16}?)\1+$/s.test(secret) || /change.?me|password|your.?secret|example/i.test(secret)
}

function isOlder(version: string, [major, minor]: [number, number]): boolean {
  const [ours = 0, oursMinor = 0] = version.split('.').map(Number)
  return ours < major || (ours === major && oursMinor < minor)
}
