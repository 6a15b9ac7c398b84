// A client of Ackbox's HTTP API for producers.
import type { BatchResult, TaskAnswer } from './answers.ts'
import { AckboxError, call, type ApiRequest, type Target } from './call.ts'
import { checkTaskNo, postText, ProducerError, written, type Task, type WrittenTask } from './task.ts'
import { waitFor } from './wait-for.ts'

export interface ClientOptions {
  /** The address of Ackbox, like https://ackbox.example.com */
  url: string
  /** API key. Its scopes define its permissions. Spaces and newlines around it are cut. */
  key?: string | undefined
  /** The timeout of one try, in milliseconds. Default 10,000. */
  timeoutMs?: number | undefined
  /** The time in which failed requests are retried, in milliseconds. Default 30,000. 0: no retries. */
  retryForMs?: number | undefined
}

export interface CallOptions {
  signal?: AbortSignal | undefined
}

export interface Client {
  /** Posts a task. Resolves when Ackbox has committed it. A task without taskNo gets a random one here, so a retry is the same task. */
  post(task: Task, options?: CallOptions): Promise<TaskAnswer>
  /**
   * Posts any number of tasks. Each task has its own result, in the same order. After an error, its `taskNos` make a repeat safe, and its
   * `results` tell how far it came.
   */
  batch(tasks: readonly Task[], options?: CallOptions): Promise<BatchResult[]>
  read(taskNo: string, options?: CallOptions): Promise<TaskAnswer>
  /**
   * Waits until the task, which may still be an outbox row, has ended. Returns it as it is after `timeoutMs` (default 60,000). Failed
   * requests are retried until then.
   */
  waitFor(taskNo: string, options?: CallOptions & { timeoutMs?: number | undefined }): Promise<TaskAnswer>
  /** Redelivers FAILED deliveries, with `force` also HANDLED ones. No retry if the request may have arrived. */
  redeliver(
    taskNo: string,
    options?: CallOptions & { downstream?: string | undefined; force?: boolean | undefined }
  ): Promise<TaskAnswer>
  /** Posts a half message: nothing is delivered before its commit. `halfMessage` runs all the steps. */
  prepare(task: Task, options?: CallOptions & { checkAfter?: string | undefined }): Promise<TaskAnswer>
  commit(taskNo: string, options?: CallOptions): Promise<TaskAnswer>
  rollback(taskNo: string, options?: CallOptions): Promise<TaskAnswer>
  /** Makes Ackbox run the producer's check now. Returns the task after the answer. */
  check(taskNo: string, options?: CallOptions): Promise<TaskAnswer>
  /**
   * Makes Ackbox read new rows of `enqueue` at once. Call it after their commit. It waits for 2 s at most, and does not throw if Ackbox
   * gives no answer.
   */
  nudge(options?: CallOptions): Promise<void>
}

/** The most tasks and bytes in one request: the limits of the API, less some bytes for the rest of the request. */
const most = { tasks: 1_000, bytes: 7 * 1_048_576 }
/** Later, Ackbox has read the rows by itself. */
const nudgeMs = 2_000

export function client(options: ClientOptions): Client {
  const target = targetOf(options)
  const ask = <Answer>(path: string, request: Omit<ApiRequest, 'path'>): Promise<Answer> =>
    call(target, { member: 'taskNo', ...request, path })
  const act = (taskNo: string, verb: string, { signal }: CallOptions): Promise<TaskAnswer> =>
    ask(`${taskPath(taskNo)}/${verb}`, { method: 'POST', signal, isRepeatable: true })
  const postOne = async (
    task: Task,
    more: Record<string, unknown>,
    signal: AbortSignal | undefined
  ): Promise<TaskAnswer> => {
    const row = written(task)
    const { taskNo, traceparent } = row
    try {
      return await ask('tasks', {
        method: 'POST',
        body: postText(row, more),
        traceparent,
        signal,
        isRepeatable: true
      })
    } catch (err) {
      if (err instanceof AckboxError) err.taskNo = taskNo
      throw err
    }
  }
  const postAtOnce = async (
    texts: readonly string[],
    signal: AbortSignal | undefined
  ): Promise<BatchResult[]> => {
    const { results } = await ask<{ results: BatchResult[] }>('tasks/batch', {
      method: 'POST',
      body: `{"tasks":[${texts.join(',')}]}`,
      signal,
      isRepeatable: true,
      member: 'results'
    })
    if (results.length === texts.length) return results
    throw new AckboxError(
      `POST tasks/batch was answered with ${results.length} results for ${texts.length} tasks, so not by Ackbox.`,
      {}
    )
  }
  /** In halves where one task makes Ackbox refuse the whole request: that finds it, and the others arrive. */
  async function* postPart(
    part: readonly Posted[],
    order: BatchOrder,
    signal: AbortSignal | undefined
  ): AsyncGenerator<Omit<BatchResult, 'taskNo'>> {
    const isBehind = part.map(({ row }) => {
      const is = order.isBehind(row)
      if (is) order.add(row)
      return is
    })
    const texts = part.flatMap(({ text }, index) => (isBehind[index] ? [] : [text]))
    const answer = texts.length === 0 ? [] : await postAtOnce(texts, signal).catch(unreadable)
    if (!Array.isArray(answer) && texts.length > 1) {
      const middle = Math.ceil(part.length / 2)
      yield* postPart(part.slice(0, middle), order, signal)
      yield* postPart(part.slice(middle), order, signal)
      return
    }
    const answers = [answer].flat().values()
    for (const [index, { row }] of part.entries()) {
      const result = isBehind[index] ? behind : (answers.next().value ?? behind)
      if (result.status === 503) order.add(row)
      yield result
    }
  }
  return {
    post: async (task, { signal } = {}) => await postOne(task, {}, signal),
    prepare: async (task, { checkAfter, signal } = {}) =>
      await postOne(
        task,
        { prepared: true, ...(checkAfter ? { checkBack: { after: checkAfter } } : {}) },
        signal
      ),
    async batch(tasks, { signal } = {}) {
      const rows = tasks.map(written)
      const taskNos = rows.map(row => row.taskNo)
      const results: BatchResult[] = []
      try {
        const order = batchOrder()
        for (const part of parts(
          rows.map(row => ({ row, text: postText(row, { traceparent: row.traceparent }) }))
        ))
          for await (const result of postPart(part, order, signal)) {
            const index = results.length
            // The result of a refused task may have no taskNo, and its pointer begins with its place in the request.
            const pointer = result.pointer?.replace(/^\/tasks\/\d+/, `/tasks/${index}`)
            results.push({ ...result, ...(pointer && { pointer }), taskNo: taskNos[index] ?? '' })
          }
      } catch (err) {
        if (err instanceof AckboxError) Object.assign(err, { taskNos, results })
        throw err
      }
      return results
    },
    read: async (taskNo, { signal } = {}) =>
      await ask(taskPath(taskNo), { method: 'GET', signal, isRepeatable: true }),
    waitFor: async (taskNo, waitOptions = {}) =>
      await waitFor(
        seconds =>
          call(
            { ...target, retryForMs: 0 },
            {
              method: 'GET',
              path: `${taskPath(taskNo)}?wait=HANDLED&timeout=${seconds}`,
              waitMs: seconds * 1_000,
              signal: waitOptions.signal,
              isRepeatable: true,
              member: 'taskNo'
            }
          ),
        waitOptions
      ),
    redeliver: async (taskNo, { downstream, force, signal } = {}) =>
      await ask(`${taskPath(taskNo)}/redeliver`, {
        method: 'POST',
        body: JSON.stringify({ downstream, force }),
        signal,
        isRepeatable: false
      }),
    commit: async (taskNo, callOptions = {}) => await act(taskNo, 'commit', callOptions),
    rollback: async (taskNo, callOptions = {}) => await act(taskNo, 'rollback', callOptions),
    check: async (taskNo, callOptions = {}) => await act(taskNo, 'check', callOptions),
    async nudge({ signal } = {}) {
      try {
        await call(
          { ...target, timeoutMs: Math.min(target.timeoutMs, nudgeMs), retryForMs: 0 },
          { method: 'POST', path: 'outbox/nudge', signal, isRepeatable: false }
        )
      } catch {
        // Ackbox reads the rows by itself within a second, so the committed rows are safe without the nudge.
        signal?.throwIfAborted()
      }
    }
  }
}

/** A task of a batch, and its JSON. */
interface Posted {
  row: WrittenTask
  text: string
}

/**
 * The tasks of a batch that have to be posted again. Ackbox keeps the order within one request (findElsewhere in delivery/accept.ts). A batch
 * may need several.
 */
interface BatchOrder {
  add(row: WrittenTask): void
  /** It must come after one of them: it has its taskNo or its orderingKey, or waits for it. */
  isBehind(row: WrittenTask): boolean
}

function batchOrder(): BatchOrder {
  const taskNos = new Set<string>()
  const keys = new Set<string>()
  return {
    add({ taskNo, orderingKey }) {
      taskNos.add(taskNo)
      if (orderingKey !== undefined) keys.add(orderingKey)
    },
    isBehind: ({ taskNo, orderingKey, after }) =>
      taskNos.has(taskNo) ||
      (orderingKey !== undefined && keys.has(orderingKey)) ||
      (taskNos.size > 0 &&
        after !== undefined &&
        (JSON.parse(after) as string[]).some(one => taskNos.has(one)))
  }
}

/** As Ackbox says it of a task behind such a one in the same request. */
const behind: Omit<BatchResult, 'taskNo'> = {
  status: 503,
  code: 'UNAVAILABLE',
  detail: 'a task before it has to be sent again: send both again'
}

/**
 * The result of the only task of a request whose bytes Ackbox does not read, or that is too large for Ackbox or a proxy. Rethrows every other
 * error.
 */
function unreadable(err: unknown): Omit<BatchResult, 'taskNo'> {
  if (!(err instanceof AckboxError)) throw err
  const { status, code = status === 413 ? 'TOO_LARGE' : undefined, detail, pointer } = err
  if ((status !== 400 && status !== 413) || code === undefined) throw err
  return { status, code, ...(detail && { detail }), ...(pointer && { pointer }) }
}

function targetOf({ url, key, timeoutMs = 10_000, retryForMs = 30_000 }: ClientOptions): Target {
  const base = URL.canParse(url) ? new URL(url) : undefined
  if (base === undefined || !/^https?:$/.test(base.protocol))
    throw new ProducerError('url must be the address of Ackbox, like https://ackbox.example.com')
  if (base.username || base.password)
    throw new ProducerError('url must be without a user and password: give the API key as key.')
  if (!base.pathname.endsWith('/')) base.pathname += '/'
  base.search = base.hash = ''
  return { base, key: checkedKey(key), timeoutMs, retryForMs }
}

/** A file ends with a newline. No message names the key: `fetch` would, in its error about an invalid header. */
function checkedKey(key: string | undefined): string | undefined {
  const text = key?.trim()
  if (text && !/^[!-~]+$/.test(text))
    throw new ProducerError('key must be one of `npx ackbox key`: printable ASCII without spaces.')
  return text
}

function taskPath(taskNo: string): string {
  checkTaskNo(taskNo)
  return `tasks/${encodeURIComponent(taskNo)}`
}

function* parts(tasks: readonly Posted[]): Generator<Posted[]> {
  let part: Posted[] = []
  let bytes = 0
  for (const task of tasks) {
    const length = Buffer.byteLength(task.text) + 1
    if (part.length === most.tasks || (part.length > 0 && bytes + length > most.bytes)) {
      yield part
      part = []
      bytes = 0
    }
    part.push(task)
    bytes += length
  }
  if (part.length > 0) yield part
}
