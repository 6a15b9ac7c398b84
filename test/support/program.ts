// Runs a program of the docs, as a reader does.
import { spawn, spawnSync } from 'node:child_process'
import path from 'node:path'
import { createInterface } from 'node:readline'
import type { Test } from 'tap'
import { tellOutput } from './verdict.ts'

export interface Program {
  pid: number
  /** The lines of stdout and stderr so far. */
  lines: readonly string[]
  /** The first line that matches, past or future. Rejects if the program ends without it. */
  said(pattern: RegExp): Promise<RegExpExecArray>
  /** Its exit code; null when a signal ended it. */
  exited: Promise<number | null>
  stop(signal?: NodeJS.Signals): Promise<number | null>
}

/** Whether this program is on the PATH and starts. */
export const isThere = (command: string, ...args: string[]): boolean =>
  spawnSync(command, args, { stdio: 'ignore' }).status === 0

/** Why tests that need these programs cannot run here; false if they can. With CI=true nothing is skipped: such a test fails. */
export function without(...programs: string[]): false | string {
  if (process.env['CI'] === 'true') return false
  const missing = programs.filter(program => spawnSync('sh', ['-c', `command -v ${program}`]).status !== 0)
  return missing.length > 0 && `${missing.join(' and ')} not found`
}

/** Starts it; it is killed with the test at the latest. */
export function program(
  t: Test,
  command: string,
  args: string[],
  { env, cwd }: { env: Record<string, string>; cwd?: string }
): Program {
  const child = spawn(command, args, {
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...env },
    ...(cwd === undefined ? {} : { cwd }),
    stdio: ['ignore', 'pipe', 'pipe']
  })
  const lines: string[] = []
  const waiting = new Set<() => void>()
  let ended = false
  const ring = (): void => {
    for (const look of waiting) look()
  }
  for (const stream of [child.stdout, child.stderr]) {
    createInterface({ input: stream }).on('line', line => {
      lines.push(line)
      ring()
    })
  }
  const exited = new Promise<number | null>(resolve => {
    const end = (code: number | null): void => {
      ended = true
      resolve(code)
      ring()
    }
    child.once('close', end)
    child.once('error', () => end(null))
  })
  const stop = (signal: NodeJS.Signals = 'SIGTERM'): Promise<number | null> => {
    if (!ended) child.kill(signal)
    return exited
  }
  t.teardown(async () => {
    await stop('SIGKILL')
    if (!t.passing()) tellOutput(t, path.basename(command), lines.join('\n'))
  })
  return {
    pid: child.pid ?? 0,
    lines,
    exited,
    stop,
    said: pattern =>
      new Promise((resolve, reject) => {
        const look = (): void => {
          const found = lines.map(line => pattern.exec(line)).find(Boolean)
          if (!found && !ended) return
          waiting.delete(look)
          if (found) resolve(found)
          else reject(new Error(`${command} ended without ${String(pattern)}:\n${lines.join('\n')}`))
        }
        waiting.add(look)
        look()
      })
  }
}
