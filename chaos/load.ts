// The producers. They post each planned task when it is due, retry after every unclear answer, and record each answer.
import { ask, askUntilClear, pause, type HttpAnswer } from './client.ts'
import type { Call, PlannedTask } from './history.ts'
import { settled } from './settled.ts'

export interface LoadOptions {
  url: string
  headers: Record<string, string>
  planned: readonly PlannedTask[]
  /** Called before a redelivery: from then on the sink answers this task well. */
  mend: (taskNo: string) => Promise<void>
  /** Ends the start of new tasks. */
  stop: AbortSignal
  /** Resolves when a task of this time may be posted. The later ones wait as long. */
  due?: (atMs: number) => Promise<void>
}

export interface Load {
  calls: Call[]
  /** Resolves when the last task was posted, or at `stop`. */
  posted: Promise<void>
  /** Resolves when every call has a clear answer, or after `ms` without progress. No call is made afterwards. */
  answered(ms: number): Promise<void>
  /** No call is repeated any more. */
  end(): void
}

export function startLoad(options: LoadOptions): Load {
  const calls: Call[] = []
  const open = new Set<Promise<void>>()
  const over = new AbortController()
  const began = performance.now()
  const start = (work: Promise<void>): void => {
    const done = work.finally(() => open.delete(done))
    open.add(done)
  }
  const post = async (): Promise<void> => {
    let lateMs = 0
    for (const task of options.planned) {
      const waitMs = task.atMs + lateMs - (performance.now() - began)
      if (waitMs > 0) await unless(options.stop, waitMs)
      const from = performance.now()
      await options.due?.(task.atMs)
      lateMs += performance.now() - from
      if (options.stop.aborted) return
      start(produce({ ...options, signal: over.signal }, calls, task))
    }
  }
  return {
    calls,
    posted: post(),
    async answered(ms) {
      await settled({ ms, stop: options.stop, everyMs: 100 }, () => ({ left: open.size }))
      over.abort()
      await Promise.all(open)
    },
    end: () => over.abort()
  }
}

/** Sleeps for `ms`, or until `stop` aborts. A negative `ms` counts as 0. */
export function unless(stop: AbortSignal, ms: number): Promise<void> {
  if (stop.aborted) return Promise.resolve()
  return new Promise(resolve => {
    const done = () => {
      clearTimeout(timer)
      stop.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, Math.max(0, ms))
    stop.addEventListener('abort', done)
  })
}

export const envelope = (task: PlannedTask, startAt: number, body = task.body): string => {
  const rest = {
    taskNo: task.taskNo,
    messageCode: task.messageCode,
    sceneType: '',
    ...(task.startInMs !== undefined && { deliverStartTime: new Date(startAt).toISOString() }),
    ...(task.delayMs !== undefined && { delay: task.delayMs }),
    ...(task.needCallback !== undefined && { needCallback: task.needCallback }),
    ...(task.retryTimes !== undefined && { retryTimes: task.retryTimes }),
    ...(task.orderingKey !== undefined && { orderingKey: task.orderingKey })
  }
  return `${JSON.stringify(rest).slice(0, -1)},"messageBody":${body}}`
}

async function produce(
  options: LoadOptions & { signal: AbortSignal },
  calls: Call[],
  task: PlannedTask
): Promise<void> {
  const { url, headers, signal } = options
  const startAt = Date.now() + (task.startInMs ?? 0)
  const text = envelope(task, startAt)
  const path = `/tasks/${task.taskNo}`
  const call = async (kind: Call['kind'], once: (waitMs: number) => Promise<HttpAnswer>): Promise<number> => {
    const made: Call = {
      taskNo: task.taskNo,
      kind,
      tries: [],
      status: 0,
      ...(kind === 'first' && task.startInMs !== undefined && { startAt })
    }
    calls.push(made)
    const { status } = await askUntilClear(once, made.tries, signal)
    made.status = status
    return status
  }
  const post = (kind: Call['kind'], body: string) =>
    call(kind, waitMs => ask(`${url}/tasks`, { method: 'POST', body, headers, waitMs }))

  if (task.isWrong) {
    await post('wrong', text)
    return
  }
  const first = post('first', text)
  const again = async () => {
    if (task.againAfterMs === undefined) return
    await pause(task.againAfterMs)
    await post('again', text)
  }
  const [status] = await Promise.all([first, again()])
  if (status < 200 || status > 299) return
  // A read after the write, by any process of the service.
  if (task.atMs % 8 === 0) await call('look', waitMs => ask(url + path, { headers, waitMs }))
  if (task.conflictAfterMs !== undefined) {
    await pause(task.conflictAfterMs)
    await post('conflict', envelope(task, startAt, '{"n":-1,"other":true}'))
  }
  if (task.removeAfterMs !== undefined) {
    await pause(task.removeAfterMs)
    await call('remove', waitMs => ask(url + path, { method: 'DELETE', headers, waitMs }))
  }
  if (task.redeliverAfterMs !== undefined) {
    await pause(task.redeliverAfterMs)
    await redeliver()
  }

  async function redeliver(): Promise<void> {
    const answer = await askUntilClear(waitMs => ask(url + path, { headers, waitMs }), [], signal)
    if (answer.status !== 200 || (JSON.parse(answer.text) as { status: string }).status !== 'FAILED') return
    await options.mend(task.taskNo)
    await call('redeliver', waitMs =>
      ask(`${url}${path}/redeliver`, { method: 'POST', body: '{}', headers, waitMs })
    )
  }
}
