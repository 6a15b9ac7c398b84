// The producers: POSTs tasks as fast as answers come (so many in flight), or at a steady rate whatever comes back.
import { setTimeout as sleep } from 'node:timers/promises'
import { now, serve } from './child.ts'
import { connection } from './http1.ts'
import { batchOf, bodyOf } from './posted.ts'

export interface LoadQuestion {
  target: string
  run: string
  /** The index of the first task; 0 without. */
  first?: number
  tasks: number
  /** Nothing is posted any more after so long. */
  seconds?: number
  inFlight: number
  /** Tasks a second; without it each answer calls for the next task. */
  rate?: number
  /** In turn; `bench` without. */
  messageCodes?: string[]
  /** So many ordering keys, in turn; none without. */
  keys?: number
  /** Tasks of a POST to the batch API; without it each task has a POST of its own. */
  batch?: number
}
export interface LoadReport {
  /** By index of the task, counted from the first: ms when its POST left, or should have. */
  starts: Float64Array
  /** Ms when it was answered 2xx; 0: it was not. */
  accepts: Float64Array
  refused: number
}

serve(
  {},
  async ({
    target,
    run,
    first = 0,
    tasks,
    seconds = Infinity,
    inFlight,
    rate,
    messageCodes = ['bench'],
    keys,
    batch
  }: LoadQuestion): Promise<LoadReport> => {
    const connections = Array.from({ length: inFlight }, () => connection(new URL(target)))
    const idle = [...connections]
    const starts = new Float64Array(tasks)
    const accepts = new Float64Array(tasks)
    const size = batch ?? 1
    const end = now() + seconds * 1000
    let refused = 0
    const post = async (over: ReturnType<typeof connection>, index: number) => {
      const messageCode = messageCodes[index % messageCodes.length]
      const number = first + index
      const past = Math.min(index + size, tasks)
      const status = await (batch === undefined
        ? over.post('/tasks', bodyOf(`${run}-${number}`, number, messageCode, keys))
        : over.post('/tasks/batch', batchOf(run, number, first + past)))
      if (status < 200 || status > 299) refused += past - index
      else accepts.fill(now(), index, past)
    }

    if (rate === undefined) {
      let next = 0
      const producer = async (over: ReturnType<typeof connection>) => {
        for (let index = next; index < tasks && now() < end; index = next) {
          next += size
          starts.fill(now(), index, next)
          await post(over, index)
        }
      }
      await Promise.all(connections.map(producer))
    } else {
      // Open loop: the clock says when a task is due, whatever has become of those before it.
      const began = now()
      const answers: Promise<void>[] = []
      for (let index = 0; index < tasks && now() < end; index += size) {
        const due = began + (index * 1000) / rate
        while (due > now()) await sleep(Math.max(1, Math.ceil(due - now())))
        // Timers are up to 2 ms late. More than that, or no connection free, is the delay of what is measured: it counts.
        starts.fill(now() - due > 2 ? due : now(), index, index + size)
        const free = idle.pop() ?? (await freed(idle))
        answers.push(post(free, index).finally(() => idle.push(free)))
      }
      await Promise.all(answers)
    }
    for (const one of connections) one.close()
    return { starts, accepts, refused }
  }
)

async function freed<T>(idle: T[]): Promise<T> {
  for (;;) {
    const one = idle.pop()
    if (one !== undefined) return one
    await sleep(1)
  }
}
