// Reads all facts for the checks. It changes nothing.
import { getTableName } from '../../db/drizzle.ts'
import * as schema from '../../db/schema.ts'
import type { Config } from '../../service/config.ts'
import { foreignCode, type ForeignCode } from '../../db/foreign-code.ts'
import { pendingMigrations } from '../../db/migrate.ts'
import { liveNodes, liveRoles, type NodeFacts } from '../../db/cluster.ts'
import { checkServer, locatePrimary, openDb, type Sql } from '../../db/pool.ts'
import type { NamedTarget } from '../../handler/load.ts'
import { needChannels } from '../../alarm/open-channels.ts'
import { messageOf, SetupError } from '../../runtime/errors.ts'
import { needTracing } from '../../service/tracing.ts'
import { loadReaders } from '../../transport/receipt-readers.ts'
import { commandLine } from '../../runtime/package.ts'
import { setupFacts, type SetupFacts } from '../../service/presence.ts'
import { demoUrl, missingFor, readHandlers } from '../read-handlers.ts'
import { lookAtHolders, type HolderFacts } from './holders.ts'
import { lookAtOutbox, type OutboxFacts } from './outbox.ts'
import { lookAtPartitions, type PartitionFacts } from './partitions.ts'
import { lookAtRedis, type RedisFacts } from './redis.ts'
import { lookAtTargets, type TargetFacts } from './targets.ts'

export interface PostgresFacts {
  version: string
  roundTripMs: number
  /** The lead of this machine's clock over that of PostgreSQL, ms. */
  clockAheadMs: number
  /** The values in Ackbox's own connections. */
  settings: Record<string, string>
  connections: number
  /** Transactions, slots and standbys that keep vacuum from removing dead rows. */
  held: HolderFacts
  pending: string[]
  /** The number of API keys that are not revoked. Undefined before the first migration. */
  keys: number | undefined
  /** Existing tables that this user may not read and write. */
  forbidden: string[]
  /** Rights and objects by which other roles could have their code run by our sessions. */
  foreign: ForeignCode[]
  /** Undefined before their migration. */
  partitions: PartitionFacts | undefined
  /** Undefined before its migration. */
  outbox: OutboxFacts | undefined
  /** Roles of the running processes. */
  roles: string[]
  /** The facts that the running processes report about themselves. Empty before that migration. */
  nodes: NodeFacts[]
}

interface Failed {
  error: string
  /** True: there is no DATABASE_URL, and the first start has not happened yet. */
  isToCome?: true
}

export interface Facts extends TargetFacts {
  postgres: PostgresFacts | Failed
  /** Undefined: no REDIS_URL. */
  redis: RedisFacts | Failed | undefined
  handlers: HandlerFacts | Failed
  /** A line for each missing package of alarm channels, RECEIPTS_FROM and tracing, with the remedy. */
  missingPackages: string[]
}

export interface HandlerFacts {
  codes: number
  downstreams: number
  /** The brokers and packages that they need and that are missing. */
  missing: string[]
  /** The targets named in the sources of the handlers. */
  named: NamedTarget[]
  /** The facts that must be equal in all processes of this setup. Undefined without a SECRET. */
  facts?: SetupFacts | undefined
}

/** `databaseUrl`: from the settings, or of the embedded PostgreSQL. Undefined: the embedded one does not exist yet. */
export async function lookAround(config: Config, databaseUrl: string | undefined): Promise<Facts> {
  const [servers, handlers, missingPackages] = await Promise.all([
    lookAtServers(config, databaseUrl),
    lookAtHandlers(config).catch(failed),
    lookAtPackages(config)
  ])
  const named = 'error' in handlers ? [] : handlers.named
  return { ...servers, ...(await lookAtTargets(config, databaseUrl, named)), handlers, missingPackages }
}

/** For a running service with loaded handlers and packages. A second load would change the `env` that they see. */
export async function lookAgain(config: Config, databaseUrl: string, handlers: HandlerFacts): Promise<Facts> {
  const [servers, targets] = await Promise.all([
    lookAtServers(config, databaseUrl),
    lookAtTargets(config, databaseUrl, handlers.named)
  ])
  return { ...servers, ...targets, handlers, missingPackages: [] }
}

async function lookAtServers(
  config: Config,
  databaseUrl: string | undefined
): Promise<Pick<Facts, 'postgres' | 'redis'>> {
  const [postgres, redis] = await Promise.all([
    databaseUrl === undefined ? toCome : lookAtPostgres(databaseUrl, config).catch(failed),
    config.redisUrl === undefined ? undefined : lookAtRedis(config.redisUrl).catch(failed)
  ])
  return { postgres, redis }
}

const toCome: Failed = {
  error: `no embedded database yet: \`${commandLine('start')}\` makes it`,
  isToCome: true
}

const failed = (err: unknown): Failed => ({ error: messageOf(err) })

async function lookAtPostgres(url: string, { retentionDays }: Config): Promise<PostgresFacts> {
  await locatePrimary(url)
  const sql = openDb(url, { max: 1, applicationName: 'ackbox doctor', statementTimeoutMs: 5_000 })
  try {
    const { version } = await checkServer(sql)
    const [startedAt, startMs] = [Date.now(), performance.now()]
    const [now] = await sql<{ at: Date }[]>`select clock_timestamp() as at`
    const roundTripMs = performance.now() - startMs
    const settings = await sql<{ name: string; setting: string }[]>`
      select name, setting from pg_settings
      where name in ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum', 'max_connections', 'transaction_timeout')`
    const [activity] = await sql<{ connections: number }[]>`
      select count(*)::int as connections from pg_stat_activity where backend_type = 'client backend'`
    const held = await lookAtHolders(sql)
    const pending = await pendingMigrations(url)
    const [table] = await sql<{ there: boolean }[]>`select to_regclass('api_key') is not null as there`
    const forbidden = await tablesWithoutRights(sql)
    const [keys] =
      table?.there && !forbidden.includes('api_key')
        ? await sql<{ count: number }[]>`select count(*)::int as count from api_key where revoked_at is null`
        : []
    const alive = table?.there && !forbidden.includes('node') ? await liveRoles(sql) : []
    const [channelsColumn] = await sql<{ there: boolean }[]>`
      select exists (select from information_schema.columns where table_name = 'node' and column_name = 'channels') as there`
    const nodes = channelsColumn?.there && alive.length > 0 ? await liveNodes(sql) : []
    const outbox = await lookAtOutbox(sql, { forbidden, isMigrated: pending.length === 0 })
    const partitions = await lookAtPartitions(sql, retentionDays)
    const foreign = await foreignCode(sql)
    return {
      version,
      roundTripMs,
      clockAheadMs: startedAt + roundTripMs / 2 - (now?.at.getTime() ?? startedAt),
      settings: Object.fromEntries(settings.map(({ name, setting }) => [name, setting])),
      connections: activity?.connections ?? 0,
      held,
      pending,
      keys: keys?.count,
      forbidden,
      foreign,
      partitions,
      outbox,
      roles: alive,
      nodes
    }
  } finally {
    await sql.end({ timeout: 1 })
  }
}

async function lookAtHandlers(config: Config) {
  const { demo, secret } = config
  const registry = await readHandlers(config)
  const { handlers, downstreams, targets } = registry
  // The egress rules always allow the receiver of a running demo.
  const named = targets.filter(({ url }) => !demo || url !== demoUrl)
  const facts = secret === undefined ? undefined : setupFacts(config, secret, registry)
  const missing = await missingFor(registry, config)
  return { codes: handlers.size, downstreams: downstreams.size, missing, named, facts }
}

/** What a start with these roles would miss. The packages of the handlers' transports: `lookAtHandlers`. */
async function lookAtPackages({ roles, alarmChannels, receiptsFrom }: Config): Promise<string[]> {
  const loads = [
    needChannels(roles.has('dispatcher') ? alarmChannels : []),
    loadReaders(roles.has('api') ? receiptsFrom : []),
    needTracing()
  ]
  return (await Promise.allSettled<unknown>(loads)).flatMap(load => {
    if (load.status === 'fulfilled') return []
    if (load.reason instanceof SetupError) return [load.reason.message]
    throw load.reason
  })
}

const allRights = ['select', 'insert', 'update', 'delete']
/** Tables for which fewer rights are enough. */
const fewerRights: Record<string, string[]> = {
  audit: ['select', 'insert'],
  api_key: ['select', 'insert', 'update']
}

/** Existing tables for which this user lacks a right that Ackbox needs, by name. */
async function tablesWithoutRights(sql: Sql): Promise<string[]> {
  const needed = Object.values(schema)
    .map(getTableName)
    .flatMap(name => (fewerRights[name] ?? allRights).map(right => ({ name, right })))
  const lacking = await sql<{ name: string }[]>`
    select distinct name from jsonb_to_recordset(${sql.json(needed)}) as needed (name text, "right" text)
    where to_regclass(name) is not null and not has_table_privilege(name, "right")
    order by name`
  return lacking.map(({ name }) => name)
}
