import { limitedSignal } from '../runtime/limited-signal.ts'
import { findNotHandled, listHandled, type Compared } from '../db/reconcile.ts'
import {
  addReconciliations,
  claimRun,
  releaseRun,
  writeRun,
  type ClaimedRun,
  type RunResult
} from '../db/reconciliations.ts'
import { isInfrastructure, type Sql } from '../db/pool.ts'
import type { Reads } from '../db/reads.ts'
import { lowestUuid, taskNoForm, uuidv7 } from '../domain/ids.ts'
import type { LoadedHandler, LoadedReconcile } from '../handler/loaded.ts'
import type { Logger } from '../runtime/logger.ts'
import { untilAborted } from '../runtime/with-timeout.ts'
import { reasonOf } from '../runtime/errors.ts'
import { textOf } from '../runtime/text-of.ts'

interface ReconcilerDeps {
  sql: Sql
  reads: Reads
  handlers: ReadonlyMap<string, LoadedHandler>
  node: string
  log: Logger
  /** Time for one `run` of a handler. */
  runMs?: number
}

export interface Reconciler {
  /** Whether a handler here has a `reconcile` at all. */
  readonly isUsed: boolean
  /** Runs the due comparisons, one after the other. Returns the ms until the next look. */
  look(stopping: AbortSignal): Promise<number>
}

const lookMs = 5_000
const againMs = 60_000
/** Time for the comparison, in addition to the time of `run`. */
const leaseMarginMs = 60_000
const mostTheirs = 1_000_000
const mostAlarms = 10_000
const mostNamed = 100
const mostInvalidLogged = 10
const atOnce = 5_000

type Scheduled = LoadedReconcile & { messageCode: string; downstream: string }

/** Compares by schedule the handled tasks of downstreams with the tasks that are HANDLED here. Needs no leader: a claim is a lease. */
export function reconciler(deps: ReconcilerDeps): Reconciler {
  const { sql, node, log, runMs = 300_000 } = deps
  const all: Scheduled[] = [...deps.handlers.values()].flatMap(({ messageCode, downstreams }) =>
    downstreams.flatMap(({ name, reconcile }) =>
      reconcile ? [{ ...reconcile, messageCode, downstream: name }] : []
    )
  )
  let isAdded = false
  return {
    isUsed: all.length > 0,
    async look(stopping) {
      if (!isAdded) await addReconciliations(sql, all)
      isAdded = true
      for (const one of all) {
        if (stopping.aborted) break
        const { everyMs, settleMs, messageCode, downstream } = one
        const leaseMs = runMs + leaseMarginMs
        try {
          const claim = await claimRun(sql, one, { owner: node, leaseMs, everyMs, settleMs })
          if (!claim) continue
          const { signal, end } = limitedSignal(stopping, runMs)
          await run(deps, one, claim, signal, stopping).finally(end)
        } catch (err) {
          // The others would fail too.
          if (isInfrastructure(err)) throw err
          log.warn({ err, messageCode, downstream }, 'reconcile.failed')
        }
      }
      return lookMs
    }
  }
}

async function run(
  deps: ReconcilerDeps,
  one: Scheduled,
  claim: ClaimedRun,
  signal: AbortSignal,
  stopping: AbortSignal
): Promise<void> {
  const { sql, log } = deps
  const { messageCode, downstream } = one
  try {
    const returned = await untilAborted(signal, theirTaskNos(one, claim, signal))
    if (!returned) throw new Error(stopping.aborted ? 'the process stops' : 'run took too long')
    const { theirs, invalid, invalidValues } = returned
    if (invalid > 0) log.warn({ messageCode, downstream, invalid, invalidValues }, 'reconcile.invalid')
    const found = await compare(deps.reads, claim, theirs)
    if (!(await writeRun(sql, claim, claim.isBehind ? 0 : one.everyMs, found))) return
    const { missing, differs, unknown, unknownTaskNos } = found
    const fields = { messageCode, downstream, from: claim.from, to: claim.to, missing, differs, unknown }
    if (missing + differs + unknown === 0) log.info({ ...fields, theirs: theirs.size }, 'reconcile.same')
    else log.warn({ ...fields, theirs: theirs.size, unknownTaskNos }, 'reconcile.mismatch')
  } catch (err) {
    if (!stopping.aborted) log.warn({ err, messageCode, downstream }, 'reconcile.failed')
    await releaseRun(sql, claim, stopping.aborted ? null : reasonOf(err), stopping.aborted ? 0 : againMs)
  }
}

interface Returned {
  theirs: ReadonlySet<string>
  /** The number of values that are no taskNo. The others are compared. */
  invalid: number
  /** The texts of the first of them. */
  invalidValues: readonly string[]
}

async function theirTaskNos(
  { run, downstream }: Scheduled,
  { from, to }: ClaimedRun,
  signal: AbortSignal
): Promise<Returned> {
  const theirs = new Set<string>()
  const invalidValues: string[] = []
  let invalid = 0
  for await (const taskNo of await run({ downstream, from, to, signal })) {
    if (signal.aborted) break
    if (typeof taskNo === 'string' && taskNoForm.test(taskNo)) theirs.add(taskNo)
    else if (++invalid <= mostInvalidLogged) invalidValues.push(textOf(taskNo))
    if (theirs.size + invalid > mostTheirs)
      throw new RangeError(`run returned more than ${mostTheirs} taskNos: run it more often`)
  }
  // Each handled task would be missing.
  if (invalid > 0 && theirs.size === 0)
    throw new TypeError(`run returned ${invalidValues[0]}, which is not a taskNo, and no taskNo`)
  return { theirs, invalid, invalidValues }
}

async function compare(reads: Reads, claim: ClaimedRun, theirs: ReadonlySet<string>): Promise<RunResult> {
  const { downstream, messageCode, from, to, open } = claim
  const compared: Compared = { downstream, messageCodes: [messageCode], from, to }
  const wrong = new Map<string, number>()
  let missing = 0
  // A task that was handled after the claim may be missing in what `run` had read before.
  for (let after = lowestUuid; ;) {
    const page = await listHandled(reads, compared, claim.at, after, atOnce)
    for (const { taskId, taskNo, attempt } of page) {
      if (theirs.has(taskNo)) continue
      missing++
      if (wrong.size < mostAlarms) wrong.set(taskId, attempt)
    }
    if (page.length < atOnce) break
    after = page.at(-1)?.taskId ?? after
  }
  let differs = 0
  const before = new Set(claim.unknown)
  const [stillUnknown, newlyUnknown] = [[] as string[], [] as string[]]
  let unknown = 0
  // Unknown taskNos of the last run lie before this window: `run` need not return them again.
  const taskNos = [...new Set([...theirs, ...(claim.isUnknownOpen ? claim.unknown : [])])]
  for (let start = 0; start < taskNos.length; start += atOnce) {
    const part = taskNos.slice(start, start + atOnce)
    // Of all messageCodes: downstreams may share one table of handled tasks.
    for (const one of await findNotHandled(reads, { ...compared, messageCodes: null }, part, '', atOnce)) {
      if (one.delivery === null || one.taskId === null) {
        unknown++
        const named = before.has(one.taskNo) ? stillUnknown : newlyUnknown
        if (named.length < mostNamed) named.push(one.taskNo)
        // Younger tasks are left to the next run, and those of other messageCodes to their own.
      } else if (one.messageCode === messageCode && one.createdAt !== null && one.createdAt < to) {
        differs++
        if (wrong.size < mostAlarms) wrong.set(one.taskId, one.attempt)
      }
    }
  }
  return {
    missing,
    differs,
    unknown,
    // Those of the last run first: their alarm stays while they are named.
    unknownTaskNos: [...stillUnknown, ...newlyUnknown].slice(0, mostNamed),
    unknownAlarm: uuidv7(),
    isUnknownNew: stillUnknown.length === 0,
    raise: [...wrong].flatMap(([taskId, attempt]) => (open.has(taskId) ? [] : { taskId, attempt })),
    // With more mismatches than are kept, an open one may be among those that were not kept.
    resolve: wrong.size < mostAlarms ? [...open].filter(taskId => !wrong.has(taskId)) : []
  }
}
