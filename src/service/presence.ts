// What this process says of itself to the others, and whether they agree: in SECRET, or tokens of one are refused by another; in the
// queue, or jobs of one wait where nobody takes them; in the handlers, or tasks of one wait for another.
import { createHash, createHmac } from 'node:crypto'
import { writeNode, liveNodes, removeNode, type NodeFacts } from '../db/cluster.ts'
import type { Sql } from '../db/pool.ts'
import type { Reach } from '../delivery/reach.ts'
import type { Registry } from '../handler/load.ts'
import { placeOf, redisAddress } from '../queue/redis-client.ts'
import { SettingError, type Config } from './config.ts'
import type { Heartbeat } from './heartbeat.ts'

/** What must be the same in all processes, as fingerprints and names without a secret. */
export type SetupFacts = Required<Pick<NodeFacts, 'secrets' | 'queue' | 'handlers'>>

/** Tells two secrets apart, and nothing else. */
const fingerprint = (secret: string): string =>
  createHmac('sha256', secret).update('ackbox fingerprint').digest('hex').slice(0, 16)

export function setupFacts(
  config: Pick<Config, 'redisUrl' | 'redisPrefix' | 'secretPrevious'>,
  secret: string,
  { handlers }: Pick<Registry, 'handlers'>
): SetupFacts {
  const sends = [...handlers.values()].flatMap(({ messageCode, downstreams }) => [
    messageCode,
    ...downstreams.map(
      ({ name, transport, needCallback, policy, limit }) =>
        `${messageCode} ${name} ${transport} ${needCallback} ${JSON.stringify([policy, limit])}`
    )
  ])
  const set = createHash('sha256').update(sends.toSorted().join('\n')).digest('hex').slice(0, 12)
  return {
    secrets: [secret, config.secretPrevious].flatMap(one => (one === undefined ? [] : fingerprint(one))),
    queue: queueName(config),
    handlers: `${handlers.size} messageCodes, ${set}`
  }
}

/** Never its password. */
function queueName({ redisUrl, redisPrefix }: Pick<Config, 'redisUrl' | 'redisPrefix'>): string {
  if (redisUrl === undefined) return 'postgres'
  const { master, options } = redisAddress(redisUrl) ?? {}
  const where = master === undefined ? placeOf(redisUrl) : `master ${master}`
  return `redis ${where}/${options?.db ?? 0} ${redisPrefix}`
}

/** During a rotation one has as its SECRET_PREVIOUS what the other still has as its SECRET. */
const isSameSecret = (one: readonly string[], two: readonly string[]): boolean =>
  one.some(secret => two.includes(secret))

export interface Disagreement {
  what: 'SECRET' | 'queue' | 'handlers'
  /** The nodes that differ from `facts`. */
  nodes: string[]
  ours: string
  theirs: string
}

/** How the processes that live differ from these facts. Those of older versions do not tell. */
export function disagreements(facts: Partial<SetupFacts>, others: readonly NodeFacts[]): Disagreement[] {
  const differing = (
    what: Disagreement['what'],
    ours: string,
    differs: (other: NodeFacts) => string | undefined
  ) => {
    const found = others.flatMap(other => {
      const theirs = differs(other)
      return theirs === undefined ? [] : { id: other.id, theirs }
    })
    const [first] = found
    return first ? [{ what, ours, theirs: first.theirs, nodes: found.map(one => one.id) }] : []
  }
  const { secrets, queue, handlers } = facts
  return [
    ...differing('SECRET', secrets?.[0] ?? '', other =>
      secrets && other.secrets && !isSameSecret(secrets, other.secrets) ? other.secrets[0] : undefined
    ),
    ...differing('queue', queue ?? '', other =>
      queue !== undefined && other.queue !== queue ? other.queue : undefined
    ),
    ...differing('handlers', handlers ?? '', other =>
      handlers !== undefined && other.handlers !== handlers ? other.handlers : undefined
    )
  ]
}

export interface Presence {
  /** Throws SettingError where processes that live have another SECRET. */
  join(): Promise<void>
  /** Writes this process with its facts, so that others see it. */
  announce(): Promise<void>
  leave(): Promise<void>
}

export interface PresenceOptions {
  sql: Sql
  node: string
  owner: Pick<Heartbeat, 'join' | 'leave'>
  config: Config
  registry: Registry
  secret: string
  version: string
  /** Of the worker of this process. */
  reach: Pick<Reach, 'reached' | 'yielded'>
}

export function presence({ sql, node, owner, version, reach, ...options }: PresenceOptions): Presence {
  const facts = setupFacts(options.config, options.secret, options.registry)
  const roles = [...options.config.roles].join(',')
  const announce = (): Promise<void> =>
    writeNode(sql, { id: node, roles, version, ...facts, reached: reach.reached(), yielded: reach.yielded() })
  return {
    async join() {
      const [other] = disagreements({ secrets: facts.secrets }, await liveNodes(sql))
      if (other)
        throw new SettingError(
          `SECRET is not that of ${other.nodes.join(', ')}, which run on this database: receipts for the one would be refused by the other. Set the same; to change it, keep the old one as SECRET_PREVIOUS (docs/operations.md)`
        )
      await Promise.all([announce(), owner.join()])
    },
    announce,
    async leave() {
      await Promise.allSettled([removeNode(sql, node), owner.leave()])
    }
  }
}
