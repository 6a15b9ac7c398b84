// One request to Ackbox, retried while a retry is safe and there is time.
import type { BatchResult } from './answers.ts'
import { messageOf } from '../adapter/message-of.ts'

/** Ackbox refused the request, or was unreachable. `code` is stable in an answer of Ackbox. */
export class AckboxError extends Error {
  override name = 'AckboxError'
  /** The status of the HTTP answer. Undefined: there was no answer. */
  readonly status: number | undefined
  /** For example TASK_CONFLICT: see the API's description. UNREACHABLE: no answer. Undefined: the answer was not from Ackbox. */
  readonly code: string | undefined
  readonly detail: string | undefined
  /** JSON pointer to the invalid member. */
  readonly pointer: string | undefined
  /** All errors, if there is more than one. */
  readonly errors: readonly { detail: string; pointer: string }[]
  /** The pause that Ackbox requests before the next try. */
  readonly retryAfterMs: number | undefined
  /** Of `post` and `prepare`: the number of the task. With this number a repeat is the same task. */
  taskNo: string | undefined
  /** Of `batch`: the numbers of all its tasks, in their order. With these numbers a repeat makes no second tasks. */
  taskNos: readonly string[] = []
  /** Of `batch`: the results of the first tasks, which were answered before the error. */
  results: readonly BatchResult[] = []

  constructor(message: string, answer: KnownRefusal, options?: ErrorOptions) {
    super(message, options)
    this.status = answer.status
    this.code = answer.code
    this.detail = answer.detail
    this.pointer = answer.pointer
    this.errors = answer.errors ?? []
    this.retryAfterMs = answer.retryAfterMs
  }
}
interface Refusal {
  status: number
  code: string
  detail: string
  pointer: string
  errors: { detail: string; pointer: string }[]
  retryAfterMs: number
}
/** The known members of a refusal. */
type KnownRefusal = { [Name in keyof Refusal]?: Refusal[Name] | undefined }

export interface Target {
  /** Ends in a slash. */
  base: URL
  key: string | undefined
  /** The limit of one try, from its first byte to the last byte of the answer. */
  timeoutMs: number
  /** The limit of all tries together. No try begins after it. */
  retryForMs: number
}

export interface ApiRequest {
  method: 'GET' | 'POST'
  /** Below the base, already encoded. */
  path: string
  body?: string | undefined
  traceparent?: string | undefined
  signal?: AbortSignal | undefined
  /** More time for one try, for an answer that Ackbox delays on purpose. */
  waitMs?: number | undefined
  /** True: the request may arrive twice. */
  isRepeatable: boolean
  /** A member of every answer of Ackbox to this request: a 2xx without it is a page of a proxy. */
  member?: 'taskNo' | 'results' | undefined
}

/** Returns the JSON of a 2xx of Ackbox. Throws an AckboxError for everything else, and the signal's reason when the signal aborts. */
export async function call<Answer>(target: Target, request: ApiRequest): Promise<Answer> {
  const end = performance.now() + target.retryForMs
  for (let tries = 1; ; tries++) {
    request.signal?.throwIfAborted()
    const answer = await attempt<Answer>(target, request)
    if (!(answer instanceof AckboxError)) return answer
    if (!mayRetry(answer, request.isRepeatable)) throw answer
    const pause = pauseMs(answer, tries)
    if (performance.now() + pause > end) throw answer
    await sleep(pause, request.signal)
  }
}

/** True: the request was not processed, because the service was full (429) or the port was closed. */
const neverTaken = (err: AckboxError): boolean =>
  err.status === 429 ||
  (err.cause as { cause?: { code?: string } } | undefined)?.cause?.code === 'ECONNREFUSED'

function mayRetry(err: AckboxError, isRepeatable: boolean): boolean {
  return isRepeatable ? isTransient(err) : neverTaken(err)
}

/** True: the same request may succeed later. */
export const isTransient = ({ status }: { status?: number | undefined }): boolean =>
  status === undefined || status >= 500 || [408, 425, 429].includes(status)

/** The pause before the next try, after this number of failed tries. */
export const pauseMs = (err: AckboxError, tries: number): number =>
  Math.max(err.retryAfterMs ?? 0, backoffMs(tries))

/** 100 ms, doubling up to 5 s, less a random part of up to half, so that many clients do not retry at the same moment. */
const backoffMs = (tries: number): number => Math.min(5_000, 100 * 2 ** (tries - 1)) * (1 - Math.random() / 2)

async function attempt<Answer>(target: Target, request: ApiRequest): Promise<Answer | AckboxError> {
  const { method, path, body, traceparent, signal } = request
  const route = `${method} ${path.replace(/\?.*$/, '')}`
  const stop = new AbortController()
  const leave = (): void => stop.abort()
  const limitMs = target.timeoutMs + (request.waitMs ?? 0)
  const timer = setTimeout(leave, limitMs)
  signal?.addEventListener('abort', leave, { once: true })
  try {
    const answer = await fetch(new URL(path, target.base), {
      method,
      headers: {
        accept: 'application/json',
        ...(target.key ? { authorization: `Bearer ${target.key}` } : {}),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        // Ackbox ignores a malformed one. `fetch` throws for one that no header can hold.
        ...(traceparent !== undefined && /^[ -~]*$/.test(traceparent) ? { traceparent } : {})
      },
      redirect: 'manual',
      signal: stop.signal,
      body: body ?? null
    })
    const text = await answer.text()
    const json = parsed(text)
    if (answer.ok && hasMember(json, request.member)) return json as Answer
    return refused(route, answer, text, json)
  } catch (err) {
    signal?.throwIfAborted()
    const { cause } = err as { cause?: { code?: string; message?: string } }
    const reason = stop.signal.aborted
      ? `no answer within ${limitMs} ms`
      : (cause?.code ?? cause?.message ?? messageOf(err))
    return new AckboxError(
      `${route}: Ackbox at ${target.base.origin} cannot be reached: ${reason}`,
      { code: 'UNREACHABLE' },
      { cause: err }
    )
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', leave)
  }
}

function refused(route: string, { status, headers }: Response, text: string, json: unknown): AckboxError {
  const retryAfterMs = retryAfter(headers.get('retry-after'))
  const found = { status, retryAfterMs }
  const problem = (typeof json === 'object' && json !== null ? json : {}) as Partial<Refusal> & {
    title?: string
  }
  if (typeof problem.code !== 'string')
    return new AckboxError(`${route} was answered ${status}, but not by Ackbox: ${text.slice(0, 200)}`, found)
  const { code, title = '', detail, pointer, errors } = problem
  const places = errors ?? (detail === undefined ? [] : [{ detail, pointer: pointer ?? '' }])
  const details = places.map(({ pointer: at, detail: text }) => (at ? `${at} ${text}` : text)).join('; ')
  return new AckboxError(
    `${route} was refused: ${status} ${code}: ${title}${details ? ` (${details})` : ''}`,
    {
      ...found,
      code,
      detail,
      pointer,
      errors
    }
  )
}

function hasMember(json: unknown, member: string | undefined): boolean {
  if (member === undefined) return json !== undefined
  return typeof json === 'object' && json !== null && Object.hasOwn(json, member)
}

/** Reads seconds or a date. A wait above one hour is ignored. */
export function retryAfter(header: string | null | undefined): number | undefined {
  if (header === null || header === undefined) return undefined
  const ms = /^\d+$/.test(header) ? Number(header) * 1_000 : Date.parse(header) - Date.now()
  return ms >= 0 && ms <= 3_600_000 ? ms : undefined
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    return undefined
  }
}

export async function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const leave = (): void => {
      clearTimeout(timer)
      reject(signal?.reason as Error)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', leave)
      resolve()
    }, ms)
    signal?.addEventListener('abort', leave, { once: true })
  })
}
