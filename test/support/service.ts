// Whole processes of Ackbox, as an operator starts them.
import { spawn, type ChildProcess } from 'node:child_process'
import { chmodSync, mkdtempSync } from 'node:fs'
import path from 'node:path'
import type { Test } from 'tap'
// Not Node's own fetch: in Node 20 a first fetch never ends if its connection breaks while its parser still compiles.
import { fetch } from 'undici'
import { removeFolder } from '../../chaos/remove-folder.ts'
import { freePort } from '../../src/embedded/port.ts'
import { dataRoot } from './memory.ts'
import { tellOutput } from './verdict.ts'

export const secret = 'a secret of the tests, long enough to be one'
/** Node without the modules that the test runner loads into every child: the service runs as an operator starts it. */
export const plainNode = ['env', '-u', 'NODE_OPTIONS', process.execPath] as const
const main = path.resolve(import.meta.dirname, '../../src/main.js')
export const handlersDir = path.resolve(import.meta.dirname, 'handlers')

export interface Exit {
  code: number | null
  signal: NodeJS.Signals | null
}

export interface Process {
  url: string
  pid: number
  /** Its output so far, of stdout and stderr. */
  output(): string
  stdout(): string
  kill(signal: NodeJS.Signals): Promise<Exit>
  exited: Promise<Exit>
}

type Env = Record<string, string | undefined>

/** A folder for this test only, removed after it. */
export function folder(t: Test): string {
  const made = mkdtempSync(path.join(dataRoot, 'ackbox-test-'))
  // When root runs the tests, PostgreSQL runs as another user, which needs access.
  chmodSync(made, 0o755)
  t.teardown(() => removeFolder(made))
  return made
}

/** Starts a service and returns at once. It is killed at the end of the test at the latest. */
export function launch(t: Test, env: Env, program = main): Omit<Process, 'url'> {
  const child: ChildProcess = spawn(plainNode[0], [...plainNode.slice(1), program], {
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], LOG_LEVEL: 'info', ...env },
    stdio: ['ignore', 'pipe', 'pipe']
  })
  let output = ''
  let stdout = ''
  child.stdout?.on('data', (chunk: Buffer) => {
    output += chunk.toString()
    stdout += chunk.toString()
  })
  child.stderr?.on('data', (chunk: Buffer) => {
    output += chunk.toString()
  })
  const exited = new Promise<Exit>(resolve =>
    child.once('close', (code, signal) => resolve({ code, signal }))
  )
  t.teardown(async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
    await exited
    if (!t.passing()) tellOutput(t, `process ${child.pid}`, output)
  })
  return {
    pid: child.pid ?? 0,
    output: () => output,
    stdout: () => stdout,
    exited,
    kill(signal) {
      child.kill(signal)
      return exited
    }
  }
}

/** Starts a service and waits until it logs that it is ready. */
export async function start(t: Test, env: Env, program = main): Promise<Process> {
  const port = env['PORT'] ?? String(await freePort())
  const process = launch(t, { ...env, PORT: port }, program)
  const url = `http://127.0.0.1:${port}`
  let ended = false
  void process.exited.then(() => {
    ended = true
  })
  for (let tries = 0; !/"msg":"ready"/.test(process.output()); tries++) {
    // Two minutes: on a busy machine a start took 17 s.
    if (ended || tries > 2_400) throw new Error(`it did not start:\n${process.output()}`)
    await new Promise(resolve => setTimeout(resolve, 50))
  }
  let over = false
  t.teardown(() => {
    over = true
  })
  return {
    ...process,
    get url() {
      // Otherwise a loop of a test that has failed would call a process that is gone until the file's time limit.
      if (over) throw new Error('the test of this process is over')
      return url
    }
  }
}

export interface Answer {
  status: number
  body: { [name: string]: unknown } | null
}

/** On a busy machine a service refuses what it has no time for, before it does any of it. Such a call is made again. */
export async function call(
  url: string,
  body?: unknown,
  method = body === undefined ? 'GET' : 'POST'
): Promise<Answer> {
  for (;;) {
    const answer = await fetch(url, {
      method,
      ...(body === undefined
        ? {}
        : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) })
    })
    const text = await answer.text()
    const said = text === '' ? null : (JSON.parse(text) as Answer['body'])
    if (answer.status !== 503 || said?.['detail'] !== 'the process is overloaded')
      return { status: answer.status, body: said }
    await new Promise(resolve => setTimeout(resolve, 100))
  }
}

/** The request did not arrive in time, the service is full, or it cannot ask its database now. */
const untaken = [408, 429, 503]

/** Posts until the answer is 2xx, as a producer that does not know whether its POST arrived. */
export async function postUntilTaken(url: () => string, task: unknown): Promise<Answer> {
  for (;;) {
    const answer = await call(`${url()}/tasks`, task).catch(() => null)
    if (answer && answer.status < 300) return answer
    if (answer && answer.status < 500 && !untaken.includes(answer.status))
      throw new Error(JSON.stringify(answer))
    await new Promise(resolve => setTimeout(resolve, 100))
  }
}

/** Repeats the request while a busy machine leads to one of these answers. `isAgain`: an answer of 200 may be due to its own first try. */
export async function untilHeard<A extends { status: number }>(
  ask: () => Promise<A>
): Promise<A & { isAgain: boolean }> {
  for (let isAgain = false; ; isAgain = true) {
    const answer = await ask()
    if (!untaken.includes(answer.status)) return { ...answer, isAgain }
    await new Promise(resolve => setTimeout(resolve, 100))
  }
}

/** Waits until the task is no longer SENDING, for ever or this many seconds. Returns the last answer. */
export async function settled(url: string, taskNo: string, seconds?: number): Promise<Answer> {
  const path = `/tasks/${encodeURIComponent(taskNo)}?wait=HANDLED&timeout=${seconds ?? 30}`
  const ask = async (): Promise<Answer> => await call(url + path)
  if (seconds !== undefined) return await ask()
  for (;;) {
    const answer = await untilHeard(ask)
    if (answer.body?.['status'] !== 'SENDING') return answer
  }
}

/** As `settled`, and each delivery has an attempt on record: a receipt may arrive before the attempt is written. */
export async function recorded(url: string, taskNo: string): Promise<Answer> {
  await settled(url, taskNo)
  for (;;) {
    const answer = await untilHeard(() => call(`${url}/tasks/${encodeURIComponent(taskNo)}`))
    const deliveries = (answer.body?.['deliveries'] ?? []) as { attempts: unknown[] }[]
    if (deliveries.every(delivery => delivery.attempts.length > 0)) return answer
    await new Promise(resolve => setTimeout(resolve, 50))
  }
}

/** Runs `work` for each item, 64 at a time. Results are in the order of the items. */
export async function eachOf<In, Out>(
  items: readonly In[],
  work: (item: In) => Promise<Out>
): Promise<Out[]> {
  const results = new Array<Out>(items.length)
  let next = 0
  await Promise.all(
    Array.from({ length: 64 }, async () => {
      for (let i = next++; i < items.length; i = next++) results[i] = await work(items[i] as In)
    })
  )
  return results
}
