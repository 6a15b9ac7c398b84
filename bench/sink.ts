// Where every variant delivers to: answers at once and writes down when each task came, and how often.
import type { AddressInfo } from 'node:net'
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
}

let run = ''
let arrivals = new Float64Array(0)
let distinct = 0
let duplicates = 0

function write(taskNo: string): void {
  const dash = taskNo.lastIndexOf('-')
  const index = Number(taskNo.slice(dash + 1))
  // A task of an earlier run has come before: that run was over only when all of it had.
  if (taskNo.slice(0, dash) !== run || arrivals[index] !== 0) duplicates++
  else {
    arrivals[index] = now()
    distinct++
  }
}

const server = answering(head => write(/\r\nackbox-task-no: *([^\r]+)/i.exec(head)?.[1] ?? ''))

server.listen(0, '127.0.0.1', () => {
  serve({ port: (server.address() as AddressInfo).port }, (question: SinkQuestion) => {
    if (question.kind === 'expect') {
      run = question.run
      arrivals = new Float64Array(question.tasks)
      distinct = duplicates = 0
    }
    return question.kind === 'report' ? { arrivals, duplicates } : distinct
  })
})
