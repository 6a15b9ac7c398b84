// Child processes of a run with a higher priority. On a busy machine thousands of connections would wait longer for the sink and the
// balancer than their senders do: no request would arrive in time, and none would be answered.
import { fork, type ChildProcess, type ForkOptions } from 'node:child_process'
import { once } from 'node:events'
import { setPriority } from 'node:os'

export function forkUrgent(file: string, args: readonly string[], options: ForkOptions): ChildProcess {
  const child = fork(file, args, { stdio: ['ignore', 2, 2, 'ipc'], ...options })
  try {
    setPriority(child.pid as number, -10)
  } catch {} // only root may
  return child
}

/** Resolves when the process has ended. */
export async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const gone = once(child, 'exit')
  child.kill('SIGKILL')
  await gone
}
