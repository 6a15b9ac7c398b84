// The downstream of every variant: it answers at once and records the first arrival of each task, and duplicates. With
// `receipts` it sends a receipt for each task, and records when the receipt was accepted instead. BENCH_PORTS: the number of
// ports. BENCH_MUTE: the port of this index only accepts connections. BENCH_ANSWER_MS: the delay of each answer.
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
      /** Arrivals per task: one at /0, one at /1 and so on. The default is 1, at any path. */
      each?: number
      receipts?: boolean
    }
  | { kind: 'count' }
  | { kind: 'report' }
export interface SinkReport {
  /** By index of the task, then of its path: ms of its first arrival (or receipt); 0 if it never arrived. */
  arrivals: Float64Array
  duplicates: number
  /** Ms of the last duplicate; 0 without any. */
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
  await Promise.resolve() // the answer is sent first
  if (await acknowledge(head)) write(head)
}

function write(head: string): void {
  const taskNo = field(head, 'ackbox-task-no')
  const dash = taskNo.lastIndexOf('-')
  const nth = each === 1 ? 0 : Number(/^POST \/(\d+) /.exec(head)?.[1])
  const index = Number(taskNo.slice(dash + 1)) * each + nth
  // A task of an earlier run is a duplicate: that run ended only after all its tasks had arrived.
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
