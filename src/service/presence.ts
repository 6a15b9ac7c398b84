// The facts that this process writes for the others, and the check that they agree. With different SECRETs, a process refuses the
// tokens of another. With different queues, jobs wait where no worker takes them. With different handlers, tasks wait for another process.
// With different alarm channels, alarms wait for the process that has the channel.
import { createHash, createHmac } from 'node:crypto'
import { handlesEntry, liveNodes, removeNode, writeNode, type NodeFacts } from '../db/cluster.ts'
import type { AlarmChannels } from '../db/cluster-tables.ts'
import type { Sql } from '../db/pool.ts'
import type { Reach } from '../delivery/reach.ts'
import type { Registry } from '../handler/load.ts'
import { placeOf, redisAddress } from '../queue/redis-address.ts'
import { SettingError, type Config } from './config.ts'
import type { Heartbeat } from './heartbeat.ts'

/** The facts that must be the same in all processes, as fingerprints and names without a secret. */
export type SetupFacts = Required<Pick<NodeFacts, 'secrets' | 'queue' | 'handlers'>> &
  Pick<NodeFacts, 'channels'>

/** Distinguishes two secrets, and reveals nothing else. */
const fingerprint = (secret: string): string =>
  createHmac('sha256', secret).update('ackbox fingerprint').digest('hex').slice(0, 16)

export function setupFacts(
  config: Pick<Config, 'redisUrl' | 'redisPrefix' | 'secretPrevious' | 'roles' | 'alarmChannels'>,
  secret: string,
  { handlers }: Pick<Registry, 'handlers'>
): SetupFacts {
  const parts = [...handlers.values()].flatMap(({ messageCode, downstreams }) => [
    messageCode,
    ...downstreams.map(
      ({ name, transport, needCallback, policy, limit }) =>
        `${messageCode} ${name} ${transport} ${needCallback} ${JSON.stringify([policy, limit])}`
    )
  ])
  const set = createHash('sha256').update(parts.toSorted().join('\n')).digest('hex').slice(0, 12)
  return {
    secrets: [secret, config.secretPrevious].flatMap(text => (text === undefined ? [] : fingerprint(text))),
    queue: queueName(config),
    handlers: `${handlers.size} messageCodes, ${set}`,
    // Only dispatchers send alarms.
    ...(config.roles.has('dispatcher') && {
      channels: Object.fromEntries(config.alarmChannels.map(({ name, rule }) => [name, rule]))
    })
  }
}

/** Without the password of Redis. */
function queueName({ redisUrl, redisPrefix }: Pick<Config, 'redisUrl' | 'redisPrefix'>): string {
  if (redisUrl === undefined) return 'postgres'
  const { master, options } = redisAddress(redisUrl) ?? {}
  const where = master === undefined ? placeOf(redisUrl) : `master ${master}`
  return `redis ${where}/${options?.db ?? 0} ${redisPrefix}`
}

/** During a rotation, two processes have at least one secret in common, as SECRET or SECRET_PREVIOUS. */
const isSameSecret = (ours: readonly string[], theirs: readonly string[]): boolean =>
  ours.some(secret => theirs.includes(secret))

/** The channels, each with its rule if it has one. */
const channelList = (channels: AlarmChannels): string =>
  Object.keys(channels)
    .toSorted()
    .map(name => `${name} ${JSON.stringify(channels[name])}`.replace(/ {}$/, ''))
    .join(', ') || 'none'

export interface Disagreement {
  what: 'SECRET' | 'queue' | 'handlers' | 'alarm channels'
  /** The nodes that differ from `facts`. */
  nodes: string[]
  ours: string
  theirs: string
}

/** How the live processes differ from these facts. Processes of older versions report none. */
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
  const channels = facts.channels && channelList(facts.channels)
  return [
    ...differing('SECRET', secrets?.[0] ?? '', other =>
      secrets && other.secrets && !isSameSecret(secrets, other.secrets) ? other.secrets[0] : undefined
    ),
    ...differing('queue', queue ?? '', other =>
      queue !== undefined && other.queue !== queue ? other.queue : undefined
    ),
    ...differing('handlers', handlers ?? '', other =>
      handlers !== undefined && other.handlers !== handlers ? other.handlers : undefined
    ),
    ...differing('alarm channels', channels ?? '', other => {
      const theirs = other.channels && channelList(other.channels)
      return channels !== undefined && theirs !== channels ? theirs : undefined
    })
  ]
}

export interface Presence {
  /** Throws SettingError if live processes have another SECRET. */
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
  /** Of the worker in this process. */
  reach: Pick<Reach, 'reached' | 'yielded'>
}

export function presence({ sql, node, owner, version, reach, ...options }: PresenceOptions): Presence {
  const facts = setupFacts(options.config, options.secret, options.registry)
  const roles = [...options.config.roles].join(',')
  const handles = [...options.registry.handlers.values()].flatMap(({ messageCode, downstreams }) =>
    downstreams.map(({ name }) => handlesEntry(messageCode, name))
  )
  const announce = (more: Pick<NodeFacts, 'handles'> = {}): Promise<boolean> =>
    writeNode(sql, {
      id: node,
      roles,
      version,
      ...facts,
      ...more,
      reached: reach.reached(),
      yielded: reach.yielded()
    })
  return {
    async join() {
      const [other] = disagreements({ secrets: facts.secrets }, await liveNodes(sql))
      if (other)
        throw new SettingError(
          `SECRET is not that of ${other.nodes.join(', ')}, which run on this database: each would refuse the receipts for the other. Set the same; to change it, follow "Rotate SECRET" in docs/operations.md`
        )
      await Promise.all([announce({ handles }), owner.join()])
    },
    async announce() {
      // After an outage of an hour.
      if (!(await announce())) await announce({ handles })
    },
    async leave() {
      await Promise.allSettled([removeNode(sql, node), owner.leave()])
    }
  }
}
