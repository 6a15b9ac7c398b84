// Moments at which a test may end, stop, delay or break this process. Without FAILPOINTS nothing happens.
import { writeSync } from 'node:fs'
import { withTimeout } from './with-timeout.ts'

/** Each is as close to its moment as possible. If statement and commit are one, "before" means before both. */
export const failpoints = [
  'accept.before_commit',
  'accept.after_commit',
  'queue.before_add',
  'queue.after_add',
  // Claims by a dispatcher. Claims by an accept pass accept.after_commit.
  'claim.after_commit',
  // A worker has taken the job from the queue.
  'execute.before_read',
  'execute.before_send',
  'execute.after_send',
  'execute.after_answer',
  'complete.before_commit',
  'complete.after_commit',
  'receipt.before_commit',
  'receipt.after_commit',
  'rescue.after_select',
  'rescue.after_commit',
  // The rows of the outbox become tasks; these also pass the points of an accept.
  'outbox.after_read',
  'outbox.after_store',
  'outbox.before_reject',
  'outbox.after_reject',
  // The relay, in a transaction of the producer's database.
  'relay.after_read',
  'relay.after_post',
  'relay.after_remove',
  // The promotion of the next delivery of an orderingKey.
  'promote.before',
  'promote.after_commit',
  'alarm.after_send',
  'check.after_answer',
  // A bulk redelivery has recorded the deliveries that it takes, and has not changed them yet.
  'bulk.after_take',
  // Retention: the archived tasks are still in the tables.
  'archive.after_write',
  'migrate.step',
  'shutdown.after_drain'
] as const
export type Failpoint = (typeof failpoints)[number]

export interface Fault {
  /** If no caller awaits the work, such as after a commit, an exception ends the process, like any bug there. */
  action: 'kill' | 'stop' | 'sleep' | 'throw'
  /** For `sleep`. The whole process sleeps, as with a blocked event loop. */
  ms: number
  /** Only at this hit, counted from 1. Undefined: at each hit. */
  hit: number | undefined
  /** A chance in (0, 1]. */
  probability: number
}

const form = /^([a-z_.]+)=(kill|stop|throw|sleep:(\d{1,6}))(?:#([1-9]\d{0,5})|%([1-9]\d?|100))?$/

/** `accept.before_commit=kill#3,queue.before_add=sleep:500%10`: at the third hit; at one of ten hits. A string is the error in the text. */
export function parseFailpoints(text: string): Map<Failpoint, Fault> | string {
  const faults = new Map<Failpoint, Fault>()
  for (const part of text.split(',').map(each => each.trim())) {
    const [, point, action = '', ms = '0', hit, percent = '100'] = form.exec(part) ?? []
    if (point === undefined)
      return `must be like accept.before_commit=kill#3 or queue.before_add=sleep:500%10, but holds ${JSON.stringify(part)}`
    const name = failpoints.find(each => each === point)
    if (name === undefined) return `has the unknown name ${point}: the names are ${failpoints.join(', ')}`
    if (faults.has(name)) return `names ${name} twice`
    faults.set(name, {
      action: action.split(':')[0] as Fault['action'],
      ms: Number(ms),
      hit: hit === undefined ? undefined : Number(hit),
      probability: Number(percent) / 100
    })
  }
  return faults
}

let armed: ReadonlyMap<Failpoint, Fault> | undefined
const hits = new Map<Failpoint, number>()

export function armFailpoints(faults: ReadonlyMap<Failpoint, Fault>): void {
  armed = faults.size > 0 ? faults : undefined
}

/** Does nothing unless FAILPOINTS names it. */
export function failpoint(name: Failpoint): void {
  if (armed !== undefined) hit(name, armed.get(name))
}

/** A failpoint 200 ms after the start of `work`, when its bytes have left, or at the end of `work` if that is earlier. */
export function failpointAmid<T>(name: Failpoint, work: Promise<T>): Promise<T> {
  if (!armed?.has(name)) return work
  return withTimeout(work, 200, () => {}).then(() => {
    failpoint(name)
    return work
  })
}

function hit(name: Failpoint, fault: Fault | undefined): void {
  if (!fault) return
  const count = (hits.get(name) ?? 0) + 1
  hits.set(name, count)
  if (fault.hit !== undefined && fault.hit !== count) return
  if (Math.random() >= fault.probability) return
  // Written without the logger: the process may end before the logger writes the line.
  writeSync(2, `${JSON.stringify({ level: 40, msg: 'failpoint', name, action: fault.action, hit: count })}\n`)
  if (fault.action === 'kill') process.kill(process.pid, 'SIGKILL')
  else if (fault.action === 'stop') process.kill(process.pid, 'SIGSTOP')
  else if (fault.action === 'throw') throw new Error(`failpoint ${name}`)
  else Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, fault.ms)
}
