// Moments at which a test may end, stop, delay or break this process. Nothing happens unless FAILPOINTS asks for it.
import { writeSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

/** Each as near to its moment as a process can stand: where statement and commit are one, "before" is before both. */
export const failpoints = [
  'accept.before_commit',
  'accept.after_commit',
  'hint.before',
  'hint.after',
  // The dispatcher's; what an accept claims is claimed by accept.after_commit.
  'claim.after_commit',
  'deliver.before_send',
  'deliver.after_send',
  'deliver.after_answer',
  'record.before_commit',
  'record.after_commit',
  'receipt.before_commit',
  'receipt.after_commit',
  'dispatch.after_select',
  'dispatch.after_commit',
  'alarm.after_send',
  'migrate.step',
  'shutdown.after_drain'
] as const
export type Failpoint = (typeof failpoints)[number]

export interface Fault {
  /** A throw where nobody waits for the work, as after a commit, ends the process like any bug there. */
  action: 'kill' | 'stop' | 'sleep' | 'throw'
  /** Of a sleep. The whole process sleeps, as one whose event loop is blocked. */
  ms: number
  /** This hit only, the first being 1; undefined: each. */
  hit: number | undefined
  /** In (0, 1]. */
  probability: number
}

const form = /^([a-z_.]+)=(kill|stop|throw|sleep:(\d{1,6}))(?:#([1-9]\d{0,5})|%([1-9]\d?|100))?$/

/** `accept.before_commit=kill#3,hint.before=sleep:500%10`: on the third hit; in one of ten. Or what is wrong with it. */
export function parseFailpoints(text: string): Map<Failpoint, Fault> | string {
  const faults = new Map<Failpoint, Fault>()
  for (const part of text.split(',').map(each => each.trim())) {
    const [, asked, action = '', ms = '0', hit, percent = '100'] = form.exec(part) ?? []
    if (asked === undefined)
      return `must be like accept.before_commit=kill#3 or hint.before=sleep:500%10, but holds ${JSON.stringify(part)}`
    const name = failpoints.find(each => each === asked)
    if (name === undefined) return `knows no ${asked}; there are ${failpoints.join(', ')}`
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

/** Does nothing in a process that was not asked for it. */
export function failpoint(name: Failpoint): void {
  if (armed !== undefined) hit(name, armed.get(name))
}

/** In the midst of `work`: a moment after its start, when its bytes have left, unless it has ended by then. */
export function failpointAmid<T>(name: Failpoint, work: Promise<T>): Promise<T> {
  if (!armed?.has(name)) return work
  return Promise.race([work, sleep(200)]).then(() => {
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
  // Past the logger, which might not get to write it any more.
  writeSync(2, `${JSON.stringify({ level: 40, msg: 'failpoint', name, action: fault.action, hit: count })}\n`)
  if (fault.action === 'kill') process.kill(process.pid, 'SIGKILL')
  else if (fault.action === 'stop') process.kill(process.pid, 'SIGSTOP')
  else if (fault.action === 'throw') throw new Error(`failpoint ${name}`)
  else Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, fault.ms)
}
