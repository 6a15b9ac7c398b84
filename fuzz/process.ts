// Watches the process of a subject from outside: it must live, print nothing, and stay within the bounds of memory and time.
import { spawn, type ChildProcess } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { ChildAnswer, ChildRequest } from './child.ts'
import { Finding, type Player } from './reader.ts'

const bounds = {
  /** The bound of the whole process, and of the memory held after a collection, because a process does not give RSS back. */
  memoryMb: 128,
  keptMb: 32,
  blockMs: 200
} as const
/** CPU time without an answer. After it the event loop counts as blocked. */
const stuckCpuMs = 15_000
const stuckMs = 180_000

export interface Watched {
  pid: number
  /** Rejects with a Finding when it ends before `stop`; never resolves. */
  ended: Promise<never>
  /** Throws a Finding if the process printed a line that is not allowed. */
  checkPrinted(): void
  stop(): Promise<void>
}

/** Node's own warnings about experimental and deprecated features. */
const fromNode = /^\(node:\d+\)|^\(Use `node/

export function watched(child: ChildProcess, mayPrint: (line: string) => boolean): Watched {
  const lines: string[] = []
  const printed: string[] = []
  let stopping = false
  for (const stream of [child.stdout, child.stderr]) {
    if (!stream) continue
    createInterface({ input: stream }).on('line', line => {
      lines.push(line)
      if (lines.length > 50) lines.shift()
      if (!mayPrint(line) && !fromNode.test(line) && printed.length < 10) printed.push(line.slice(0, 500))
    })
  }
  const closed = new Promise<string>(resolve => {
    child.once('close', (code, signal) => resolve(`code ${code}, signal ${signal}`))
    child.once('error', error => resolve(error.message))
  })
  const ended = closed.then((how): never => {
    if (stopping) throw new Finding('exit', 'stopped')
    throw new Finding('exit', `${how}: ${lines.slice(-30).join('\n').slice(0, 2_000)}`)
  })
  ended.catch(() => {}) // its end matters only while an answer is pending
  return {
    pid: child.pid ?? 0,
    ended,
    checkPrinted() {
      if (printed.length > 0) throw new Finding('printed', printed.splice(0).join('\n'))
    },
    async stop() {
      stopping = true
      if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
      await closed
    }
  }
}

interface Playing<Input> {
  /** A throw ends the process: the subject cannot be fuzzed. */
  warmUp(): Promise<void>
  play(inputs: readonly Input[]): Promise<void>
  close?(): Promise<void>
}

/** A player whose subject is warm. */
export async function playerOf<Input>(
  subject: SubjectProcess,
  { warmUp, play, close = () => subject.stop() }: Playing<Input>
): Promise<Player<Input>> {
  try {
    await warmUp()
  } catch (error) {
    await close()
    throw error
  }
  return {
    get peakRssMb() {
      return subject.peakRssMb
    },
    get longestBlockMs() {
      return subject.longestBlockMs
    },
    play,
    close
  }
}

export interface SubjectProcess {
  pid: number
  readonly peakRssMb: number
  readonly longestBlockMs: number
  /** Plays inputs without a judgement, because a library allocates some memory once. The memory after it counts as idle. */
  warmUp(inputs: readonly unknown[]): Promise<void>
  /** Plays all inputs at once, and returns their results in order. Throws a Finding. */
  play(inputs: readonly unknown[]): Promise<unknown[]>
  stop(): Promise<void>
}

/** `module`: the compiled file of a Subject, as a URL. `greets`: it prints something while it starts. */
export async function subjectProcess(
  module: URL,
  options: unknown,
  { greets = false } = {}
): Promise<SubjectProcess> {
  const { NODE_OPTIONS: _, ...env } = process.env // a test runner may have set it
  const child = spawn(
    process.execPath,
    [
      '--expose-gc',
      // A small young generation: objects that wait for their collection must not look like a flood.
      '--max-semi-space-size=4',
      fileURLToPath(new URL('child.js', import.meta.url)),
      fileURLToPath(module),
      JSON.stringify(options)
    ],
    // Its own process group: Ctrl-C ends the run, and the run ends this process.
    { env, detached: true, serialization: 'advanced', stdio: ['ignore', 'pipe', 'pipe', 'ipc'] }
  )
  let isWarm = !greets
  const life = watched(child, () => !isWarm)
  const { pid } = life
  const open = new Map<number, (answer: ChildAnswer) => void>()
  child.on('message', (answer: ChildAnswer) => {
    open.get(answer.id)?.(answer)
    open.delete(answer.id)
  })
  let ids = 0
  let idleMb = 0
  let heldMb = 0
  let peakRssMb = 0
  let longestBlockMs = 0

  async function answered(id: number): Promise<unknown> {
    const answer = await new Promise<ChildAnswer>(resolve => open.set(id, resolve))
    if ('unsettled' in answer) throw new Finding('unsettled', answer.unsettled)
    if ('kind' in answer) throw new Finding(answer.kind, answer.detail)
    if ('rejected' in answer) throw new Finding('rejected', answer.rejected)
    return answer.result
  }
  type Question = { play: unknown } | { rest: true } | { look: true }
  function ask(...questions: readonly Question[]): Promise<unknown[]> {
    const all = questions.map(question => {
      const request: ChildRequest = { id: ++ids, ...question }
      const answer = answered(request.id)
      if (child.connected) child.send(request, () => {}) // if it has just died, `ended` has the reason
      return answer
    })
    // Waits for all, so that no input of this batch is still running in the next one.
    const settled = Promise.allSettled(all).then(() => Promise.all(all))
    return patiently(settled)
  }
  async function patiently<Result>(work: Promise<Result>): Promise<Result> {
    const over = new AbortController()
    try {
      return await Promise.race([work, life.ended, stuck(pid, over.signal)])
    } finally {
      over.abort()
      work.catch(() => {})
    }
  }

  /** The MB that are held after a collection. */
  const rest = async (): Promise<number> => {
    const [held = 0] = (await ask({ rest: true })) as number[]
    forgetPeak(pid)
    return held
  }

  try {
    await patiently(answered(0))
  } catch (error) {
    await life.stop()
    throw error
  }

  return {
    pid,
    get peakRssMb() {
      return peakRssMb
    },
    get longestBlockMs() {
      return longestBlockMs
    },

    async warmUp(inputs) {
      for (let times = 0; times < 3; times++) await ask(...inputs.map(input => ({ play: input })))
      await sleep(50)
      heldMb = await rest()
      idleMb = memoryMb(pid).now
      isWarm = true
      life.checkPrinted()
    },

    async play(inputs) {
      const kept = (await rest()) - heldMb
      if (kept > bounds.keptMb) throw new Finding('memory', `${Math.round(kept)} MB are never let go`)
      const results = await ask(...inputs.map(input => ({ play: input })))
      const [block] = (await ask({ look: true })) as number[]
      const peak = memoryMb(pid).peak - idleMb
      life.checkPrinted()
      longestBlockMs = Math.max(longestBlockMs, block ?? 0)
      peakRssMb = Math.max(peakRssMb, peak)
      if (peak > bounds.memoryMb) throw new Finding('memory', `${Math.round(peak)} MB above idle`)
      if ((block ?? 0) > bounds.blockMs)
        throw new Finding('block', `the event loop computed for ${Math.round(block ?? 0)} ms without a turn`)
      return results
    },

    stop: () => life.stop()
  }
}

/** Rejects with a Finding if the process computes, or waits, for too long without an answer. */
async function stuck(pid: number, signal: AbortSignal): Promise<never> {
  const cpu = cpuMs(pid)
  for (let waitedMs = 0; ; waitedMs += 500) {
    await sleep(500, undefined, { signal })
    if (cpuMs(pid) - cpu > stuckCpuMs)
      throw new Finding('block', `no answer after ${stuckCpuMs / 1_000} s of CPU time`)
    if (waitedMs > stuckMs) throw new Finding('unsettled', `no answer after ${stuckMs / 1_000} s`)
  }
}

/** 0 without /proc: memory is then not judged. */
function memoryMb(pid: number): { now: number; peak: number } {
  const status = proc(pid, 'status')
  const mb = (name: string): number =>
    Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)?.[1] ?? 0) / 1_024
  return { now: mb('VmRSS'), peak: mb('VmHWM') }
}

function forgetPeak(pid: number): void {
  try {
    writeFileSync(`/proc/${pid}/clear_refs`, '5')
  } catch {
    // The peak is then the peak of its whole life.
  }
}

function cpuMs(pid: number): number {
  const fields = proc(pid, 'stat').split(') ')[1]?.split(' ') ?? []
  return (Number(fields[11] ?? 0) + Number(fields[12] ?? 0)) * 10
}

function proc(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8')
  } catch {
    return ''
  }
}
