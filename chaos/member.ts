// One process of the service under a supervisor: started, watched, started again.
import { spawn, type ChildProcess } from 'node:child_process'
import { closeSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { fetch } from 'undici'
import { pause } from './client.ts'
import type { Exit } from './history.ts'
import { textOf } from './leaks.ts'
import type { Build } from './other-build.ts'
import type { Role } from './nemesis-plan.ts'
import { senderVariable } from './terms.ts'

export interface Member {
  name: string
  role: Role
  url: string
  pid(): number
  /** The unique name of its present launch. A pid may be reused. */
  process(): string
  start(): Promise<void>
  /** kill -9. Resolves when the process has ended. */
  kill(): Promise<void>
  /** SIGTERM. Resolves when the process has ended. */
  end(): Promise<void>
  freeze(): void
  thaw(): void
}

export interface MemberOptions {
  name: string
  role: Role
  /** The value of ROLE. */
  roles: string
  port: number
  /** What its next launch runs. */
  build: () => Build
  env: Record<string, string>
  folder: string
  onExit: (exit: Exit) => void
}

/** Only ends a run that hangs. While PostgreSQL is down, the process is started again and again until PostgreSQL is back. */
const startMs = 600_000
/** Characters of its log that show why it ended. */
const logTailLength = 600

export function member({ name, role, roles, port, build, env, folder, onExit }: MemberOptions): Member {
  const url = `http://127.0.0.1:${port}`
  let child: ChildProcess | undefined
  let gone: Promise<void> = Promise.resolve()
  let by: Exit['by']
  let starting = false
  let launches = 0
  const nameOfLaunch = () => `${name}#${launches}`

  function launch(): void {
    // A file takes all output without a reader, and survives every kill.
    const file = join(folder, `${name}.log`)
    const log = openSync(file, 'a')
    by = undefined
    starting = true
    launches++
    const launchedAt = Date.now()
    const { main, handlers } = build()
    const started = spawn(process.execPath, [main], {
      env: {
        PATH: process.env['PATH'] ?? '',
        HOME: process.env['HOME'] ?? '',
        ...env,
        HANDLERS_DIR: handlers,
        [senderVariable]: nameOfLaunch(),
        ROLE: roles,
        PORT: `${port}`
      },
      cwd: folder,
      // Its own process group: Ctrl-C reaches only the run, which then ends this process.
      detached: true,
      stdio: ['ignore', log, log]
    })
    closeSync(log)
    child = started
    gone = new Promise(resolve => {
      started.once('exit', (code, signal) => {
        const logTail = by === 'kill' ? undefined : textOf(file).slice(-logTailLength)
        onExit({
          at: Date.now(),
          name,
          pid: started.pid ?? 0,
          launchedAt,
          code,
          signal,
          starting,
          ...(by && { by }),
          ...(logTail && { logTail })
        })
        resolve()
      })
    })
  }

  const isAlive = () => child !== undefined && child.exitCode === null && child.signalCode === null
  const signal = async (how: 'kill' | 'term') => {
    by = how
    if (isAlive()) child?.kill(how === 'kill' ? 'SIGKILL' : 'SIGTERM')
    await gone
  }
  return {
    name,
    role,
    url,
    pid: () => child?.pid ?? 0,
    process: nameOfLaunch,
    async start() {
      // A process that ends by itself is started again, as by a supervisor. The exit is recorded for the judge.
      for (const end = Date.now() + startMs; Date.now() < end; await pause(50)) {
        if (!isAlive()) {
          launch()
          await pause(200)
        }
        const answer = await fetch(`${url}/readyz`, { signal: AbortSignal.timeout(5_000) }).catch(
          () => undefined
        )
        await answer?.arrayBuffer().catch(() => {})
        if (!answer?.ok) continue
        starting = false
        return
      }
      throw new Error(`${name} did not get ready within ${startMs / 1_000} s: see its log`)
    },
    kill: () => signal('kill'),
    end: () => signal('term'),
    freeze: () => void child?.kill('SIGSTOP'),
    thaw: () => void child?.kill('SIGCONT')
  }
}
