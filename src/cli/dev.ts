// ackbox dev: runs the service and restarts it when a handler or .env changes.
import { spawn, type ChildProcess } from 'node:child_process'
import { statSync, watch, type FSWatcher } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import { parseEnv } from 'node:util'
import { typeErrors } from './handlers/type-errors.ts'
import { counted, readArguments, UsageError } from './arguments.ts'
import { environment } from '../service/config.ts'
import { messageOf } from '../runtime/errors.ts'
import { commandLine } from '../runtime/package.ts'
import { onStop } from '../runtime/stop.ts'
import { readTextFile } from '../runtime/text-file.ts'
import { devEvent } from './read-handlers.ts'

export const help = `${commandLine('dev')}    runs the service, and restarts it when a handler or .env changes

It watches HANDLERS_DIR, or the folder handlers/: modules of JavaScript and TypeScript (.js, .mjs, .cjs, .ts, .mts, .cts), and .json.
After a change of a file elsewhere, stop it and start it again. After an error in a handler it waits for the next change.
Ctrl-C finishes the work in progress, then stops. A second Ctrl-C stops at once.

Exit: 0 stopped by Ctrl-C or SIGTERM · 1 an error, which is printed, or stopped at once`

/** Changes within this time count as one: an editor writes a file in several steps, and a copied folder changes many files. */
const settleMs = 150
/** How often to look for a folder that does not exist. */
const lookMs = 1_000
const program = join(import.meta.dirname, `ackbox${import.meta.url.endsWith('.ts') ? '.ts' : '.js'}`)

export async function run(args: string[]): Promise<void> {
  readArguments({ args })
  const before = { ...process.env }
  environment() // an unreadable .env ends the command here
  const stop = new AbortController()
  // A terminal signals the child as well. The child counts two signals in a row as one.
  let child: ChildProcess | undefined
  onStop(() => {
    stop.abort()
    child?.kill('SIGTERM')
  }, ['SIGINT', 'SIGTERM', 'SIGHUP'])
  const changes = watchAll(stop.signal)

  while (!stop.signal.aborted) {
    const folder = handlersFolder(before['HANDLERS_DIR'])
    const changed = changes.next()
    const problem = changes.follow(folder)
    if (problem !== undefined) {
      console.error(`ackbox: the folder ${folder} ${problem}`)
      if (!child) {
        process.exitCode = 1
        stop.abort()
        return
      }
      const wasThere = isFolder(folder)
      const looking = setInterval(() => {
        if (!wasThere && isFolder(folder)) changes.tell(folder)
      }, lookMs)
      await changed
      clearInterval(looking)
      continue
    }
    // The child reads .env again: values that this process read from it must not override new ones.
    child = spawn(process.execPath, [...process.execArgv, program, 'start'], {
      stdio: 'inherit',
      env: { ...before, HANDLERS_DIR: folder, npm_lifecycle_event: devEvent }
    })
    const checking = new AbortController()
    void printTypeErrors(folder, checking.signal)
    const exited = new Promise<number | null>(done => child?.once('exit', done))
    const first = await Promise.race([changed, exited.then(code => ({ code }))])
    void changed.then(() => checking.abort())
    if (stop.signal.aborted) {
      checking.abort()
      process.exitCode = (await exited) ?? 1
      return
    }
    if (typeof first === 'object') {
      console.error(
        `ackbox: the service ended with ${first.code ?? 'a signal'}: waiting for a change in ${folder} or .env`
      )
      await changed
    }
    if (stop.signal.aborted) return
    console.error(`ackbox: ${await changed} changed, restarting`)
    child.kill('SIGTERM')
    await exited
  }
}

let isToldUnchecked = false
/** Beside the service, which does not wait for it. A change of a handler ends the check. */
async function printTypeErrors(folder: string, signal: AbortSignal): Promise<void> {
  const { errors, lines } = await typeErrors(folder, signal)
  if (signal.aborted || lines.length === 0) return
  if (errors === 0) {
    if (!isToldUnchecked) console.error(`ackbox: ${lines.join('\n')}`)
    isToldUnchecked = true
    return
  }
  console.error(
    [`ackbox: ${counted(errors, 'type error')} in the handlers:`, ...lines.map(line => `  ${line}`)].join(
      '\n'
    )
  )
}

/** `given`: HANDLERS_DIR of the environment, which comes before that of .env. */
function handlersFolder(given: string | undefined): string {
  let text = ''
  try {
    text = readTextFile('.env')
  } catch (err) {
    // There is none, or an editor replaces it just now.
    if ((err as NodeJS.ErrnoException).code !== 'ENOENT')
      console.error(`ackbox: .env cannot be read: ${messageOf(err)}`)
  }
  return resolve(given || parseEnv(text)['HANDLERS_DIR'] || 'handlers')
}

interface Changes {
  /** Resolves with the name of the next changed file after the changes have settled, or with '' after an abort. */
  next(): Promise<string>
  /** Watches this folder in place of the one before. Returns why it cannot, if so. */
  follow(folder: string): string | undefined
  /** Counts as a change of this name. */
  tell(name: string): void
}

/** Changes of .env and of the followed folder. */
function watchAll(signal: AbortSignal): Changes {
  const waiting = new Set<(name: string) => void>()
  const resolveAll = (name: string): void => {
    for (const done of waiting) done(name)
    waiting.clear()
  }
  let timer: NodeJS.Timeout | undefined
  const change = (name: string): void => {
    clearTimeout(timer)
    timer = setTimeout(resolveAll, settleMs, name)
  }
  /** Throws if it cannot be watched, for example at the limit of inotify. */
  const watchFolder = (folder: string, recursive: boolean, isOurs: (name: string) => boolean): FSWatcher =>
    watch(folder, { recursive, signal }, (_event, name) => {
      if (name && isOurs(name)) change(name)
    }).on('error', err => {
      if (!signal.aborted) console.error(`ackbox: ${folder} is no longer watched: ${messageOf(err)}`)
    })
  try {
    // The folder instead of the file: most editors replace the file, and it may not exist yet.
    watchFolder(process.cwd(), false, name => basename(name) === '.env')
  } catch (err) {
    throw new UsageError(`the folder ${process.cwd()} cannot be watched: ${messageOf(err)}`)
  }
  signal.addEventListener('abort', () => {
    clearTimeout(timer)
    resolveAll('')
  })
  let followed: FSWatcher | undefined
  return {
    next: () => new Promise(done => waiting.add(done)),
    tell: change,
    follow(folder) {
      // Always anew: the same path may be another folder since, for example after a checkout.
      followed?.close()
      followed = undefined
      if (!isFolder(folder)) return 'does not exist: set HANDLERS_DIR to the folder of your handlers'
      try {
        followed = watchFolder(
          folder,
          true,
          name => /\.[cm]?[jt]s$|\.json$/.test(name) && !name.includes('node_modules')
        )
      } catch (err) {
        return `cannot be watched: ${messageOf(err)}`
      }
      return undefined
    }
  }
}

const isFolder = (path: string): boolean => statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false
