// Where every variant delivers to: answers at once and writes down when each task came, and how often. BENCH_PORTS: on
// so many ports. BENCH_MUTE: the port of this index only accepts connections. BENCH_ANSWER_MS: each answer takes as long.
import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import { now, serve } from './child.ts'
import { answering } from './http1.ts'

export type SinkQuestion =
  | { kind: 'expect'; run: string; tasks: number }
  | { kind: 'count' }
  | { kind: 'report' }
export interface SinkReport {
  /** By index of the task: ms of its first arrival, 0 if it never came. */
  arrivals: Float64Array
  duplicates: number
  /** Ms of the last of them; 0 without any. */
  lastDuplicate: number
}

let run = ''
let arrivals = new Float64Array(0)
let distinct = 0
let duplicates = 0
let lastDuplicate = 0

function write(taskNo: string): void {
  const dash = taskNo.lastIndexOf('-')
  const index = Number(taskNo.slice(dash + 1))
  // A task of an earlier run has come before: that run was over only when all of it had.
  if (taskNo.slice(0, dash) !== run || arrivals[index] !== 0) {
    duplicates++
    lastDuplicate = now()
  } else {
    arrivals[index] = now()
    distinct++
  }
}

const { BENCH_PORTS = '1', BENCH_MUTE, BENCH_ANSWER_MS = '0' } = process.env

async function listen(mute: boolean): Promise<number> {
  const server = mute
    ? createServer(socket => socket.on('error', () => socket.destroy()).resume())
    : answering(
        head => write(/\r\nackbox-task-no: *([^\r]+)/i.exec(head)?.[1] ?? ''),
        Number(BENCH_ANSWER_MS)
      )
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

const ports = await Promise.all(
  Array.from({ length: Number(BENCH_PORTS) }, (_, index) => listen(`${index}` === BENCH_MUTE))
)

serve({ port: ports[0], ports }, (question: SinkQuestion) => {
  if (question.kind === 'expect') {
    run = question.run
    arrivals = new Float64Array(question.tasks)
    distinct = duplicates = lastDuplicate = 0
  }
  return question.kind === 'report' ? { arrivals, duplicates, lastDuplicate } : distinct
})
