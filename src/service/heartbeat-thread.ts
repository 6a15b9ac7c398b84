// The thread that beats for its process, on its own connection: a process with a busy event loop or a full pool is not declared dead.
// The beats of a dispatcher also find silent processes and declare them dead.
import { parentPort, workerData, type MessagePort } from 'node:worker_threads'
import { addOwner, beat, declareDead, openBeats, removeOwner, type SilentOwner } from '../db/owners.ts'
import { locatePrimary } from '../db/pool.ts'
import { hasEnded, processIdentity } from '../runtime/process-identity.ts'
import { sleep } from '../runtime/repeat.ts'
import {
  answeredAtSlot,
  joinedAtSlot,
  microseconds,
  ownNumberSlot,
  type HeartbeatData,
  type ThreadMessage
} from './heartbeat.ts'
import { messageOf } from '../runtime/errors.ts'

const beatMs = 500
/** A process that is silent for so long, by the database's clock, is dead. */
const deadMs = 3_000
/** The same for a process of this machine that has ended: PostgreSQL has finished its statements by then. */
const endedMs = 1_000
/** A longer time between two answers is an outage. Other processes may have had it too, and need time to beat again. */
const outageMs = 1_500
const watchedMs = 4_000
/** The process must also be silent for so long by our own clock: the database's clock may be changed. */
const seenSilentMs = 1_900
/** `watchedMs` of a process that has just started. */
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
let declaresDead = data.declaresDead
/** When each silent process was first seen silent, by our monotonic clock. */
let silentSince = new Map<number, number>()
const leaving = new AbortController()

/** Resolves when no statement that declares a process dead is running. */
let declaring: Promise<void> = Promise.resolve()

port.on('message', (order: 'retire' | 'leave') => {
  declaresDead = false
  if (order === 'leave') leaving.abort()
  else void declaring.then(() => tell({ kind: 'retired' }))
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
// Otherwise others would declare this process dead, and find none of its deliveries.
if (number > 0 && !isFailing) await removeOwner(sql, number).catch(() => {})
await sql.end({ timeout: 1 })

async function turn(): Promise<void> {
  const sentAt = microseconds()
  if (number === 0) {
    number = await addOwner(sql, { node, isWorker, process: identity })
    Atomics.store(times, joinedAtSlot, sentAt)
    Atomics.store(times, ownNumberSlot, BigInt(number))
    Atomics.store(times, answeredAtSlot, sentAt)
    tell({ kind: 'joined', number })
    hasJoined = true
    return
  }
  const silent = await beat(sql, number)
  if (!silent) {
    tell({ kind: 'declared_dead', number })
    number = 0
    Atomics.store(times, ownNumberSlot, 0n)
    await turn()
    return
  }
  // The time of the send: PostgreSQL received the beat no earlier.
  Atomics.store(times, answeredAtSlot, sentAt)
  watch()
  const now = performance.now()
  silentSince = new Map(silent.map(({ number }) => [number, silentSince.get(number) ?? now] as const))
  if (!declaresDead || silent.length === 0) return
  const declaration = declareSilentDead(silent)
  declaring = declaration.catch(() => {})
  await declaration
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

async function declareSilentDead(silent: readonly SilentOwner[]): Promise<void> {
  const isSteady = performance.now() - steadySince >= neededMs
  const dead = silent.flatMap(({ number, process, silentMs }) => {
    if (silentMs > endedMs && hasEnded(process)) return [{ number, silentMs: endedMs }]
    const seenMs = performance.now() - (silentSince.get(number) ?? Infinity)
    return isSteady && silentMs > deadMs && seenMs >= seenSilentMs ? [{ number, silentMs: deadMs }] : []
  })
  if (dead.length === 0) return
  const owners = await declareDead(sql, dead)
  if (owners.length > 0) tell({ kind: 'died', owners })
}
