// The producers: they POST tasks as fast as answers come (`inFlight` at a time), or at a steady rate independent of the answers.
import { setTimeout as sleep } from 'node:timers/promises'
import { now, serve } from './child.ts'
import { connection, isRefusal } from './http1.ts'
import { batchOf, bodyOf } from './posted.ts'

export interface LoadQuestion {
  target: string
  run: string
  /** The index of the first task; 0 without. */
  first?: number
  tasks: number
  /** Posting stops after this long. */
  seconds?: number
  inFlight: number
  /** Tasks a second; without it each answer triggers the next task. */
  rate?: number
  /** In turn; `bench` without. */
  messageCodes?: string[]
  /** The number of ordering keys, used in turn; none without. */
  keys?: number
  /** Tasks per POST to the batch API; without it each task has its own POST. */
  batch?: number
}
export interface LoadReport {
  /** By index of the task, counted from the first: the ms when its POST was sent, or was due. */
  starts: Float64Array
  /** The ms when it was answered 2xx; 0 without such an answer. */
  accepts: Float64Array
  /** Tasks answered 429 or 503. Any other answer ends the benchmark. */
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
    /** By status: the tasks. */
    const refusals = new Map<number, number>()
    const post = async (over: ReturnType<typeof connection>, index: number) => {
      const messageCode = messageCodes[index % messageCodes.length]
      const number = first + index
      const past = Math.min(index + size, tasks)
      const status = await (batch === undefined
        ? over.post('/tasks', bodyOf(`${run}-${number}`, number, messageCode, keys))
        : over.post('/tasks/batch', batchOf(run, number, first + past)))
      if (status >= 200 && status <= 299) accepts.fill(now(), index, past)
      else if (isRefusal(status)) refusals.set(status, (refusals.get(status) ?? 0) + past - index)
      else throw new Error(`a POST was answered ${status || 'by an end of the connection'}`)
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
      // Open loop: the clock alone determines when a task is due, even if earlier tasks are not answered yet.
      const began = now()
      const answers: Promise<void>[] = []
      for (let index = 0; index < tasks && now() < end; index += size) {
        const due = began + (index * 1000) / rate
        while (due > now()) await sleep(Math.max(1, Math.ceil(due - now())))
        // Timers are up to 2 ms late. A longer delay, or the lack of a free connection, is caused by the service: it counts.
        starts.fill(now() - due > 2 ? due : now(), index, index + size)
        const free = idle.pop() ?? (await freed(idle))
        answers.push(post(free, index).finally(() => idle.push(free)))
      }
      await Promise.all(answers)
    }
    for (const one of connections) one.close()
    for (const [status, tasks] of refusals) console.error(`  ${tasks} tasks were answered ${status}`)
    return { starts, accepts, refused: [...refusals.values()].reduce((sum, tasks) => sum + tasks, 0) }
  }
)

async function freed<T>(idle: T[]): Promise<T> {
  for (;;) {
    const one = idle.pop()
    if (one !== undefined) return one
    await sleep(1)
  }
}
