// A process that is started again whenever it dies, as a supervisor would.
import { fork, type ChildProcess } from 'node:child_process'
import { closeSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { pause } from '../client.ts'
import type { Exit } from '../history.ts'
import { textOf } from '../leaks.ts'

export interface Kept {
  name: string
  pid(): number
  /** kill -9; it is started again. */
  kill(): void
  /** From the next launch on it has no failpoints. */
  calm(): void
  /** SIGTERM, and not started again. */
  end(): Promise<void>
  /** False if no process runs at this moment. */
  tell(message: object): boolean
}

export interface KeepOptions {
  name: string
  /** The compiled program, and its arguments. */
  program: string
  args: string[]
  env: Record<string, string>
  /** FAILPOINTS of each launch, counted from 0. */
  points: (launch: number) => string
  folder: string
  /** The line of its log from which on it is ready. */
  readyLine: RegExp
  onExit: (exit: Exit) => void
  onMessage?: (message: unknown) => void
}

const restMs = 200

export function keep(options: KeepOptions): Kept {
  const { name, program, args, env, points, folder, readyLine, onExit, onMessage } = options
  let child: ChildProcess | undefined
  let ending = false
  let isCalm = false
  let launches = 0

  function once(): Promise<void> {
    const launch = launches++
    // A file for each launch. It takes all output without a reader, and survives every kill.
    const file = join(folder, `${name}.${launch}.log`)
    const log = openSync(file, 'a')
    const launchedAt = Date.now()
    const started = fork(program, args, {
      env: {
        PATH: process.env['PATH'] ?? '',
        HOME: process.env['HOME'] ?? '',
        ...env,
        CHAOS_PROCESS: `${name}#${launch + 1}`,
        FAILPOINTS: isCalm ? '' : points(launch)
      },
      cwd: folder,
      // Its own process group: Ctrl-C reaches only the run, which then ends this process.
      detached: true,
      stdio: ['ignore', log, log, 'ipc']
    })
    closeSync(log)
    child = started
    started.on('message', message => onMessage?.(message))
    started.on('error', () => {}) // the channel broke with its process
    return new Promise(resolve => {
      started.once('exit', (code, signal) => {
        const text = textOf(file)
        onExit({
          at: Date.now(),
          name,
          pid: started.pid ?? 0,
          launchedAt,
          code,
          signal,
          starting: !readyLine.test(text),
          ...(ending && { by: 'term' as const }),
          ...(signal !== 'SIGKILL' && { logTail: text.slice(-600) })
        })
        resolve()
      })
    })
  }

  const kept = (async () => {
    while (!ending) {
      await once()
      if (!ending) await pause(restMs)
    }
  })()
  const isAlive = () => child !== undefined && child.exitCode === null && child.signalCode === null
  return {
    name,
    pid: () => (isAlive() ? (child?.pid ?? 0) : 0),
    kill: () => void child?.kill('SIGKILL'),
    calm: () => {
      isCalm = true
    },
    async end() {
      ending = true
      child?.kill('SIGTERM')
      await kept
    },
    tell: message => isAlive() && child?.connected === true && child.send(message, () => {})
  }
}
