// A thread that beats for its process, on a connection of its own: a busy event loop or a full pool is not called dead. The beats of a
// dispatcher also look for processes that are silent, and call them dead.
import { parentPort, workerData, type MessagePort } from 'node:worker_threads'
import { addOwner, beat, callDead, openBeats, removeOwner, type SilentOwner } from '../db/owners.ts'
import { locatePrimary } from '../db/pool.ts'
import { hasEnded, processIdentity } from '../runtime/process-identity.ts'
import { sleep } from '../runtime/repeat.ts'
import {
  answeredAt,
  joinedAt,
  microseconds,
  ownNumber,
  type HeartbeatData,
  type ThreadMessage
} from './heartbeat.ts'
import { messageOf } from '../runtime/errors.ts'

const beatMs = 500
/** Silent for so long by the database's clock, a process is dead. */
const deadMs = 3_000
/** One of this machine that has ended: what it had sent to PostgreSQL is done by then. */
const endedMs = 1_000
/** A longer time between two answers is an outage: others may have had it too, and need time to be heard of again. */
const outageMs = 1_500
const watchedMs = 4_000
/** Seen silent for so long by our own clock too: the database's may be set. */
const seenSilentMs = 1_900
/** For a process that has just started. */
const watchedAtFirstMs = 2_000

const { url, node, isWorker, shared, ...data } = workerData as HeartbeatData
const times = new BigInt64Array(shared)
const sql = openBeats(url)
const identity = processIdentity()
const port = parentPort as MessagePort
const tell = (message: ThreadMessage): void => port.postMessage(message)

let number = 0
let lastAnswerAt = 0
let steadySince = 0
let neededMs = watchedAtFirstMs
let isFailing = false
let hasJoined = false
let calls = data.calls
/** Since when each has been seen silent, by our monotonic clock. */
let silentSince = new Map<number, number>()
const leaving = new AbortController()

/** Resolves when no call is on its way. */
let called: Promise<void> = Promise.resolve()

port.on('message', (order: 'retire' | 'leave') => {
  calls = false
  if (order === 'leave') leaving.abort()
  else void called.then(() => tell({ kind: 'retired' }))
})

await locatePrimary(url).catch(() => {})
while (!leaving.signal.aborted) {
  try {
    await turn()
    isFailing = false
  } catch (err) {
    if (!isFailing || !hasJoined) tell({ kind: 'failing', reason: messageOf(err) })
    isFailing = true
    await locatePrimary(url).catch(() => {})
  }
  await sleep(beatMs, leaving.signal)
}
port.close()
// Others would call it dead otherwise, and find nothing.
if (number > 0 && !isFailing) await removeOwner(sql, number).catch(() => {})
await sql.end({ timeout: 1 })

async function turn(): Promise<void> {
  const sentAt = microseconds()
  if (number === 0) {
    number = await addOwner(sql, { node, isWorker, process: identity })
    Atomics.store(times, joinedAt, sentAt)
    Atomics.store(times, ownNumber, BigInt(number))
    Atomics.store(times, answeredAt, sentAt)
    tell({ kind: 'joined', number })
    hasJoined = true
    return
  }
  const silent = await beat(sql, number)
  if (!silent) {
    tell({ kind: 'called_dead', number })
    number = 0
    Atomics.store(times, ownNumber, 0n)
    await turn()
    return
  }
  // By when it was sent: PostgreSQL took it no earlier.
  Atomics.store(times, answeredAt, sentAt)
  watch()
  const now = performance.now()
  silentSince = new Map(silent.map(({ number }) => [number, silentSince.get(number) ?? now] as const))
  if (!calls || silent.length === 0) return
  const call = callThem(silent)
  called = call.catch(() => {})
  await call
}

function watch(): void {
  const now = performance.now()
  if (lastAnswerAt === 0) steadySince = now
  else if (now - lastAnswerAt > outageMs) {
    steadySince = now
    neededMs = watchedMs
  }
  lastAnswerAt = now
}

async function callThem(silent: readonly SilentOwner[]): Promise<void> {
  const isSteady = performance.now() - steadySince >= neededMs
  const dead = silent.flatMap(one => {
    if (one.silentMs > endedMs && hasEnded(one.process)) return [{ number: one.number, silentMs: endedMs }]
    const seenMs = performance.now() - (silentSince.get(one.number) ?? Infinity)
    return isSteady && one.silentMs > deadMs && seenMs >= seenSilentMs
      ? [{ number: one.number, silentMs: deadMs }]
      : []
  })
  if (dead.length === 0) return
  const called = await callDead(sql, dead)
  if (called.length > 0) tell({ kind: 'died', owners: called })
}
