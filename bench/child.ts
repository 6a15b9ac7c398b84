// Requests to the processes of a benchmark: one question, one answer, over Node's IPC channel.
import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

export interface Child {
  pid: number
  /** Its first message, sent when it was ready. */
  hello: unknown
  ask: (question: object) => Promise<unknown>
  stop: () => Promise<void>
}

/** Starts `file` (relative to this folder, as compiled) and waits for its hello. */
export async function start(file: string, env: Record<string, string> = {}): Promise<Child> {
  const path = fileURLToPath(new URL(file, import.meta.url))
  const child = fork(path, {
    env: { ...process.env, ...env },
    serialization: 'advanced',
    stdio: ['ignore', 2, 2, 'ipc']
  })
  const ended = once(child, 'exit').then(() => {
    throw new Error(`${file} ended before it answered`)
  })
  ended.catch(() => {}) // its end is an error only while a question is open
  const answer = async () => (await Promise.race([once(child, 'message'), ended]))[0] as unknown
  return {
    pid: child.pid ?? 0,
    hello: await answer(),
    async ask(question) {
      const answered = answer()
      child.send(question)
      return await answered
    },
    stop: () => stop(child)
  }
}

/** Ends a process that we started: SIGTERM, and SIGKILL after 10 s. */
export async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const gone = once(child, 'exit')
  child.kill('SIGTERM')
  const timer = setTimeout(() => child.kill('SIGKILL'), 10_000)
  await gone
  clearTimeout(timer)
}

/** Ms of a clock that all processes of this machine share. */
export const now = (): number => Number(process.hrtime.bigint()) / 1e6

/** The child's side: sends hello, then answers each question. */
export function serve(hello: unknown, answer: (question: never) => unknown): void {
  process.on(
    'message',
    question => void Promise.resolve(answer(question as never)).then(reply => process.send?.(reply))
  )
  process.on('disconnect', () => process.exit(0)) // the benchmark is gone: no other process would end this one
  process.send?.(hello)
}
