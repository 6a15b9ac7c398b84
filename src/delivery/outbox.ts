import { isAway } from '../db/batch.ts'
import {
  hasOutbox,
  leaseShards,
  leaveShards,
  readOutboxState,
  releaseShards,
  shardCount,
  type OutboxRead,
  type OutboxRow
} from '../db/outbox.ts'
import { failpoint } from '../runtime/failpoint.ts'
import type { Metrics } from '../runtime/metrics.ts'
import { interruptibleSleep, repeat } from '../runtime/repeat.ts'
import { acceptRows, type AcceptRowsDeps } from './accept-rows.ts'
import { outboxHealth } from './outbox-health.ts'
import { outboxLooks } from './outbox-looks.ts'

export interface OutboxDeps extends AcceptRowsDeps {
  metrics: Pick<Metrics, 'outboxRows' | 'outbox'>
  /** The lease of a shard: a process that does not renew it keeps the shard this long (5 s). */
  leaseMs?: number
}

export interface Outbox {
  /** Looks until the signal aborts; ends when the last look is over. */
  run(signal: AbortSignal): Promise<void>
  /** Rows were committed just now: look at once. */
  nudge(): void
  /** Resolves when no look that a nudge began is running. */
  idle(): Promise<void>
  /** Since when the rows are stuck: the looks fail, or a row can be neither read nor moved. Undefined where `run` does not run. */
  health(): 'ok' | 'stuck' | undefined
}

const soonMs = 100
const idleMs = 1_000
/** The wait after a look that found only rows that cannot be read. */
const unreadMs = 5_000
/** The wait between queries for a first row, which run between looks while the outbox is in use. */
const peekMs = 40
/** The outbox counts as in use this long after a row. */
const inUseMs = 600_000
const stateMs = 5_000
/** The time for which rows are left to other processes that have their handler. */
const elsewhereMs = 5_000
const allShards = Array.from({ length: shardCount }, (_, shard) => shard)

/** Turns the rows that producers enqueued into tasks. It needs no leader: a row that two processes read becomes one task. */
export function outboxAcceptor(deps: OutboxDeps): Outbox {
  const { sql, log, leaseMs = 5_000 } = deps
  const { cluster, claiming } = deps.accepting
  const shards = leases(deps, leaseMs)
  const codesElsewhere = leftFor<string>(elsewhereMs)
  const floor = outboxFloor()
  const waiting = interruptibleSleep()
  const looks = outboxLooks(deps)
  const health = outboxHealth(deps)
  let isRunning = false
  let restMs = soonMs
  let failures = 0
  let usedUntil = -Infinity
  /** Set if another process had the same rows: the next look begins after this id. Rows with a key are not skipped. */
  let startAfter: number | undefined

  async function look(keyed: boolean): Promise<number> {
    const without = {
      shards: keyed && startAfter === undefined ? shards.others() : allShards,
      codes: codesElsewhere.now()
    }
    const read = await looks.read({ after: startAfter ?? floor.id(), without })
    health.saw(read.fault)
    if (startAfter === undefined) floor.saw(read, without.shards.length + without.codes.length === 0)
    const [first] = read.rows
    if (!first && read.fault !== undefined) return unreadMs
    if (!first) {
      const jumped = startAfter !== undefined
      startAfter = undefined
      return jumped ? 0 : (restMs = Math.min(idleMs, restMs * 2))
    }
    failpoint('outbox.after_read')
    restMs = soonMs
    usedUntil = performance.now() + inUseMs
    const held = await shards.hold(read.rows.flatMap(row => row.shard ?? []))
    const rows = read.rows.filter(row => row.shard === null || held.has(row.shard))
    const { left, lost, elsewhere } = await acceptRows(deps, rows)
    if (elsewhere.length > 0) await leave(elsewhere)
    startAfter = lost > rows.length / 2 ? read.rows.at(-1)?.id : undefined
    return left === 0 && (read.isFull || rows.length < read.rows.length) ? 0 : restMs
  }

  /** With a row, all rows of its shard are left: they keep their order. The next looks do not read them. */
  async function leave(rows: readonly OutboxRow[]): Promise<void> {
    for (const { shard, messageCode } of rows)
      if (shard === null && messageCode !== null) codesElsewhere.add(messageCode)
    await shards.leave(rows.flatMap(row => row.shard ?? []))
  }

  async function turn(keyed: boolean): Promise<number> {
    try {
      const waitMs = await look(keyed)
      failures = 0
      return waitMs
    } catch (err) {
      // The loss of the database is logged once, as `database.unavailable`.
      if (isAway(err)) {
        cluster.setDatabaseAway()
        log.debug({ err }, 'outbox.failed')
      } else {
        health.saw(err)
        log.warn({ err }, 'outbox.failed')
      }
      startAfter = undefined
      return Math.min(2_000, soonMs * 2 ** failures++)
    }
  }

  /** Waits `restMs`, or until there may be a row. */
  async function rest(restMs: number, signal: AbortSignal): Promise<void> {
    for (const end = performance.now() + restMs; ;) {
      const leftMs = end - performance.now()
      // No peeks while the outbox is not in use, or the database is away.
      const peeks =
        performance.now() < usedUntil && failures === 0 && startAfter === undefined && restMs < unreadMs
      if (leftMs <= 0 || (await waiting.take(peeks ? Math.min(peekMs, leftMs) : leftMs, signal))) return
      if (!peeks) continue
      const without = { codes: codesElsewhere.now(), shards: shards.left() }
      const isWhole = without.codes.length + without.shards.length === 0
      if (await hasOutbox(sql, floor.id(), isWhole ? undefined : without).catch(() => true)) return
    }
  }

  let once: Promise<void> | undefined
  let again = false
  /** For a process without the loop. Rows with a key are left to the processes that run it and hold the shards. */
  async function lookOnce(): Promise<void> {
    do {
      again = false
      while (claiming() && (await turn(false)) === 0);
    } while (again && claiming())
    once = undefined
  }

  return {
    async run(signal) {
      isRunning = true
      const reporting = repeat(
        stateMs,
        async () => {
          const state = await readOutboxState(sql)
          deps.metrics.outbox(state)
          await health.report(state.oldestMs)
        },
        err =>
          isAway(err) ? log.debug({ err }, 'outbox.state_failed') : log.warn({ err }, 'outbox.state_failed'),
        signal
      )
      while (!signal.aborted) await rest(await turn(true), signal)
      isRunning = false
      await reporting
      // Otherwise the other processes would wait for the end of the leases.
      await shards.release()
    },
    nudge() {
      if (isRunning) waiting.end()
      else if (once) again = true
      else once = lookOnce()
    },
    idle: async () => once,
    health: () => (isRunning ? health.state() : undefined)
  }
}

/**
 * Which process accepts the rows of a shard of ordering keys. This only keeps two processes from doing the same work. The order would hold without it: a
 * process that reads a row also reads and writes all earlier rows without a final answer.
 */
function leases({ sql, node }: Pick<OutboxDeps, 'sql' | 'node'>, leaseMs: number) {
  const held = new Map<number, number>()
  const others = leftFor<number>(idleMs)
  const left = leftFor<number>(elsewhereMs)
  return {
    /** The shards that belonged to other processes a moment ago, or are left to them. */
    others: () => [...others.now(), ...left.now()],
    left: left.now,
    /** Leaves these shards to other processes for a while. */
    async leave(shards: readonly number[]): Promise<void> {
      if (shards.length === 0) return
      for (const shard of shards) {
        held.delete(shard)
        left.add(shard)
      }
      await leaveShards(sql, node, [...new Set(shards)])
    },
    /** Returns those of these shards that this process holds long enough to write a batch. */
    async hold(wanted: readonly number[]): Promise<Set<number>> {
      const all = [...new Set(wanted)]
      const isOurs = (shard: number) => (held.get(shard) ?? 0) > performance.now() + leaseMs / 2
      const missing = all.filter(shard => !isOurs(shard))
      if (missing.length > 0) {
        const from = performance.now()
        const ours = new Set(await leaseShards(sql, node, missing, leaseMs))
        for (const shard of missing) {
          if (ours.has(shard)) held.set(shard, from + leaseMs)
          else others.add(shard)
        }
      }
      return new Set(all.filter(isOurs))
    },
    async release(): Promise<void> {
      if (held.size > 0) await releaseShards(sql, node).catch(() => {}) // the leases end anyway
    }
  }
}

/** What is left to other processes: each for `ms`. */
function leftFor<What>(ms: number) {
  const until = new Map<What, number>()
  return {
    add: (what: What) => void until.set(what, performance.now() + ms),
    now(): What[] {
      for (const [what, end] of until) if (end <= performance.now()) until.delete(what)
      return [...until.keys()]
    }
  }
}

/** A look reads the rows above this id. The rows below it are gone, but PostgreSQL cannot vacuum them while an old transaction is open. */
interface OutboxFloor {
  id(): number
  /** The result of a look from the floor on. `isWhole`: it left nothing out. */
  saw(read: OutboxRead, isWhole: boolean): void
}

/**
 * The wait between looks that read all rows. They find the rows that the floor would hide: the sequence may have been set back, or a
 * backend may have paused after it took its id and before its first write, which makes its transaction visible.
 */
const fullLookMs = 60_000

/**
 * An id is taken before its transaction commits, so a higher id may be seen first. No open transaction can still commit an id below the
 * floor: all transactions that had begun when the highest id was seen have ended, and no row up to that id is left.
 */
export function outboxFloor(clock: () => number = performance.now.bind(performance)): OutboxFloor {
  let floor = 0
  let next: { id: number; begunBelow: number } | undefined
  let fullAt = clock() + fullLookMs
  return {
    id() {
      if (clock() < fullAt) return floor
      fullAt = clock() + fullLookMs
      next = undefined
      return (floor = 0)
    },
    saw({ rows, endedBelow, begunBelow }, isWhole) {
      const last = rows.at(-1)
      if (next && isWhole && endedBelow >= next.begunBelow && (rows[0]?.id ?? Infinity) > next.id) {
        floor = next.id
        next = undefined
      }
      if (last) next ??= { id: last.id, begunBelow }
    }
  }
}
