// The programs of an example, each in its own process. A program that is killed by SIGKILL is started again, as by a supervisor.
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'

export interface ProgramOptions {
  name: string
  command: string[]
  env: Record<string, string>
  cwd: string
  /** The program is ready when a line of its output matches. */
  ready: RegExp
  /** Called with every line of its output. */
  onLine(line: string): void
  /** Called when it is ready, or was killed and is started again. */
  onChange(text: string): void
  /** Called when it ends by itself with an exit code other than 0. */
  onFailed(error: Error): void
}

export interface Program {
  name: string
  /** Resolves when it is ready, or at its end. */
  ready(): Promise<void>
  /** kill -9. Resolves when it is ready again; false if it was not running. */
  kill(): Promise<boolean>
  /** SIGTERM, and SIGKILL after 15 s. It is not started again. */
  stop(): Promise<void>
}

const patienceMs = 15_000

export function start(options: ProgramOptions): Program {
  const { name, onChange, onFailed } = options
  const [command = '', ...args] = options.command
  let child: ChildProcess
  let starting: Promise<void>
  let isRunning = false
  let isStopping = false

  function launch(): void {
    // A process group of its own: Ctrl-C reaches only the runner, which stops all programs in order.
    const mine = spawn(command, args, {
      env: options.env,
      cwd: options.cwd,
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true
    })
    child = mine
    const last: string[] = []
    starting = new Promise(ready => {
      for (const stream of [mine.stdout, mine.stderr])
        createInterface({ input: stream }).on('line', line => {
          options.onLine(line)
          last.push(line)
          if (last.length > 20) last.shift()
          if (isRunning || !options.ready.test(line)) return
          isRunning = true
          onChange(`${name} is ready, pid ${mine.pid}`)
          ready()
        })
      mine.once('error', onFailed)
      mine.once('close', (code, signal) => {
        isRunning = false
        if (signal === 'SIGKILL' && !isStopping) {
          onChange(`${name} was killed, and is started again`)
          launch()
          return ready(starting)
        }
        if (code !== 0 && !isStopping)
          onFailed(new Error(`${name} ended with ${signal ?? `exit code ${code}`}:\n${last.join('\n')}`))
        return ready()
      })
    })
  }

  async function ready(): Promise<void> {
    // After a kill in the meantime there is another start to wait for.
    for (let seen; seen !== starting;) await (seen = starting)
  }

  launch()
  return {
    name,
    ready,
    async kill() {
      if (!isRunning) return false
      const gone = once(child, 'close')
      if (!child.kill('SIGKILL')) return false
      await gone
      await ready()
      return true
    },
    async stop() {
      isStopping = true
      if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return
      const gone = once(child, 'close')
      child.kill('SIGTERM')
      const late = setTimeout(() => child.kill('SIGKILL'), patienceMs)
      await gone
      clearTimeout(late)
    }
  }
}
