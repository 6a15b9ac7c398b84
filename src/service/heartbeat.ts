// The heartbeat of this process. Its thread sends the beats; its number marks the deliveries that it claims. Without beats, the process
// stops its sends before others declare it dead. A process that was declared dead drops its claims and continues with a new number.
import { Worker } from 'node:worker_threads'
import type { DeadOwner } from '../db/owners.ts'
import { DatabaseError } from '../db/pool.ts'
import type { Owner } from '../delivery/lease.ts'
import type { Logger } from '../runtime/logger.ts'
import { interruptibleSleep } from '../runtime/repeat.ts'

export interface HeartbeatData {
  url: string
  node: string
  isWorker: boolean
  /** This process declares others dead. */
  declaresDead: boolean
  shared: SharedArrayBuffer
}

/** The messages of the thread. */
export type ThreadMessage =
  | { kind: 'joined' | 'declared_dead'; number: number }
  | { kind: 'failing'; reason: string }
  | { kind: 'died'; owners: DeadOwner[] }
  | { kind: 'retired' }

/** Slots of the shared memory: two times in µs of the clock that all threads share, and our number; 0: none. */
export const [answeredAtSlot, joinedAtSlot, ownNumberSlot] = [0, 1, 2]
export const microseconds = (): bigint => process.hrtime.bigint() / 1_000n

/** No send starts when the last answered beat is older than this. Others wait longer before they declare a process dead. */
const silentMs = 2_000
/** The longest wait of `retire`: PostgreSQL may be away. */
const retireMs = 1_000
/** A start fails after so many tries to join, half a second apart. */
const mostFailures = 10

export interface Heartbeat extends Owner {
  /** Resolves when this process has its number. */
  join(): Promise<void>
  /** This process declares no others dead from now on. Resolves when the last ones are reported, or after a second. */
  retire(): Promise<void>
  leave(): Promise<void>
}

export interface HeartbeatOptions {
  databaseUrl: string
  node: string
  roles: ReadonlySet<string>
  onDead: (owners: DeadOwner[]) => void
  log: Logger
}

export function openHeartbeat({ databaseUrl, node, roles, onDead, log }: HeartbeatOptions): Heartbeat {
  const shared = new SharedArrayBuffer(3 * BigInt64Array.BYTES_PER_ELEMENT)
  const times = new BigInt64Array(shared)
  // Both clocks are monotonic: their difference is constant.
  const aheadMs = performance.now() - Number(microseconds()) / 1_000
  const at = (slot: number): number => Number(Atomics.load(times, slot)) / 1_000 + aheadMs
  let thread: Worker | undefined
  let ended: Promise<void> | undefined
  const retired = interruptibleSleep()

  function start(): Promise<void> {
    const workerData: HeartbeatData = {
      url: databaseUrl,
      node,
      isWorker: roles.has('worker'),
      declaresDead: roles.has('dispatcher'),
      shared
    }
    const worker = new Worker(new URL('heartbeat-thread.js', import.meta.url), { workerData })
    thread = worker
    // Errors are not caught, so they end the process: without beats it would live on and send nothing.
    ended = new Promise(resolve => worker.once('exit', () => resolve()))
    return new Promise((resolve, reject) => {
      let hasJoined = false
      let failures = 0
      worker.once('exit', () => reject(new Error('the heartbeat ended')))
      worker.on('message', (message: ThreadMessage) => {
        if (message.kind === 'died') {
          for (const owner of message.owners) log.warn({ ...owner }, 'node.died')
          onDead(message.owners)
        } else if (message.kind === 'failing') {
          log.warn({ reason: message.reason }, 'heartbeat.failed')
          if (!hasJoined && ++failures === mostFailures)
            reject(
              new DatabaseError(`This process cannot join the others in the table owner: ${message.reason}`)
            )
        } else if (message.kind === 'retired') retired.end()
        else if (message.kind === 'declared_dead')
          log.warn({ node, number: message.number }, 'node.called_dead')
        else {
          if (hasJoined) log.info({ node, number: message.number }, 'node.joined')
          hasJoined = true
          resolve()
        }
      })
    })
  }

  return {
    number: () => Number(Atomics.load(times, ownNumberSlot)) || null,
    isSilent: () => performance.now() - at(answeredAtSlot) > silentMs,
    since: () => at(joinedAtSlot),
    join: start,
    async retire() {
      thread?.postMessage('retire')
      if (thread) await retired.take(retireMs, new AbortController().signal)
    },
    async leave() {
      thread?.postMessage('leave')
      await ended
    }
  }
}
