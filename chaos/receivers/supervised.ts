// A program that is started again whenever it ends, as by a supervisor, and its log.
import { spawn, type ChildProcess } from 'node:child_process'
import { closeSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { pause } from '../client.ts'
import type { Exit } from '../history.ts'
import { textOf } from '../leaks.ts'

export interface Supervised {
  name: string
  log(): string
  launches(): number
  /** Kills it for good. */
  end(): Promise<void>
}

export interface SupervisedOptions {
  name: string
  /** The compiled file. */
  main: string
  env: Record<string, string>
  folder: string
  onExit: (exit: Exit) => void
}

/** Between an end and the next start. */
const pauseMs = 200
/** Characters of its log that show why it ended. */
const logTailLength = 600

export function supervise({ name, main, env, folder, onExit }: SupervisedOptions): Supervised {
  const file = join(folder, `${name}.log`)
  let child: ChildProcess | undefined
  let launches = 0
  let isOver = false
  const living = (async () => {
    while (!isOver) {
      launches++
      const launchedAt = Date.now()
      const before = textOf(file).length
      const log = openSync(file, 'a')
      const started = spawn(process.execPath, [main], {
        env: {
          PATH: process.env['PATH'] ?? '',
          HOME: process.env['HOME'] ?? '',
          ...env,
          LAUNCH: `${launches}`
        },
        cwd: folder,
        detached: true,
        stdio: ['ignore', log, log, 'ipc']
      })
      closeSync(log)
      child = started
      await new Promise<void>(resolve =>
        started.once('exit', (code, signal) => {
          onExit({
            at: Date.now(),
            name,
            pid: started.pid ?? 0,
            launchedAt,
            code,
            signal,
            starting: false,
            ...(isOver && { by: 'kill' }),
            logTail: textOf(file).slice(before).slice(-logTailLength)
          })
          resolve()
        })
      )
      if (!isOver) await pause(pauseMs)
    }
  })()
  return {
    name,
    log: () => textOf(file),
    launches: () => launches,
    async end() {
      isOver = true
      child?.kill('SIGKILL')
      await living
    }
  }
}
