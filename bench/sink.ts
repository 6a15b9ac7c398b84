// Where every variant delivers to: answers at once and writes down when each task came, and how often. Asked to, it sends
// a receipt for each, and what counts is when that was taken. BENCH_PORTS: on so many ports. BENCH_MUTE: the port of this
// index only accepts connections. BENCH_ANSWER_MS: each answer takes as long.
import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import { now, serve } from './child.ts'
import { answering, field } from './http1.ts'
import { acknowledge } from './receipts.ts'

export type SinkQuestion =
  | {
      kind: 'expect'
      run: string
      tasks: number
      /** A task comes so often: once to /0, once to /1 and so on. 1 unless said, to any path. */
      each?: number
      receipts?: boolean
    }
  | { kind: 'count' }
  | { kind: 'report' }
export interface SinkReport {
  /** By index of the task, and of its path within: ms of its first arrival (or receipt), 0 if it never came. */
  arrivals: Float64Array
  duplicates: number
  /** Ms of the last of them; 0 without any. */
  lastDuplicate: number
}

let run = ''
let each = 1
let receipts = false
let arrivals = new Float64Array(0)
let distinct = 0
let duplicates = 0
let lastDuplicate = 0

async function take(head: string): Promise<void> {
  await Promise.resolve() // the answer goes out first
  if (await acknowledge(head)) write(head)
}

function write(head: string): void {
  const taskNo = field(head, 'ackbox-task-no')
  const dash = taskNo.lastIndexOf('-')
  const nth = each === 1 ? 0 : Number(/^POST \/(\d+) /.exec(head)?.[1])
  const index = Number(taskNo.slice(dash + 1)) * each + nth
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
    : answering(head => (receipts ? void take(head) : write(head)), Number(BENCH_ANSWER_MS))
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
    each = question.each ?? 1
    receipts = question.receipts ?? false
    arrivals = new Float64Array(question.tasks * each)
    distinct = duplicates = lastDuplicate = 0
  }
  return question.kind === 'report' ? { arrivals, duplicates, lastDuplicate } : distinct
})
