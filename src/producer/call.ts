// One request to Ackbox, tried again as long as that is safe and there is time.

/** Ackbox refused, or could not be reached. `code` is stable where it was Ackbox that spoke. */
export class AckboxError extends Error {
  override name = 'AckboxError'
  /** Of the HTTP answer; undefined: there was none. */
  readonly status: number | undefined
  /** Like TASK_CONFLICT: see the API's description. UNREACHABLE: there was no answer. Undefined: the answer was not Ackbox's. */
  readonly code: string | undefined
  readonly detail: string | undefined
  /** JSON pointer to the member that is to blame. */
  readonly pointer: string | undefined
  /** Everything that is wrong, where it is more than one thing. */
  readonly errors: readonly { detail: string; pointer: string }[]
  /** How long Ackbox asked to be left alone. */
  readonly retryAfterMs: number | undefined

  constructor(message: string, answer: Answered, options?: ErrorOptions) {
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
/** What of it is known. */
type Answered = { [Name in keyof Refusal]?: Refusal[Name] | undefined }

export interface Target {
  /** Ends in a slash. */
  base: URL
  key: string | undefined
  /** Of one try, from its first byte to the last of the answer. */
  timeoutMs: number
  /** Of all tries together: no further one begins after it. */
  retryForMs: number
}

export interface ApiRequest {
  method: 'GET' | 'POST'
  /** Below the base, already encoded. */
  path: string
  body?: string | undefined
  traceparent?: string | undefined
  signal?: AbortSignal | undefined
  /** More time for one try, for an answer that is held back on purpose. */
  waitMs?: number | undefined
  /** Whether it may arrive twice. */
  isRepeatable: boolean
}

/** The JSON of a 2xx. Throws an AckboxError for everything else, and the signal's reason when that aborts. */
export async function call<Answer>(target: Target, request: ApiRequest): Promise<Answer> {
  const end = performance.now() + target.retryForMs
  for (let tries = 1; ; tries++) {
    request.signal?.throwIfAborted()
    const answer = await attempt<Answer>(target, request)
    if (!(answer instanceof AckboxError)) return answer
    if (!mayRetry(answer, request.isRepeatable)) throw answer
    const pause = Math.max(answer.retryAfterMs ?? 0, backoffMs(tries))
    if (performance.now() + pause > end) throw answer
    await sleep(pause, request.signal)
  }
}

/** Nobody took it: neither a full service nor a port that nobody listens on has done anything. */
const neverTaken = (err: AckboxError): boolean =>
  err.status === 429 ||
  (err.cause as { cause?: { code?: string } } | undefined)?.cause?.code === 'ECONNREFUSED'

function mayRetry(err: AckboxError, isRepeatable: boolean): boolean {
  if (!isRepeatable) return neverTaken(err)
  return err.status === undefined || err.status >= 500 || [408, 425, 429].includes(err.status)
}

/** 100 ms, doubling to 5 s, less up to a half, so that many do not come back in step. */
const backoffMs = (tries: number): number => Math.min(5_000, 100 * 2 ** (tries - 1)) * (1 - Math.random() / 2)

async function attempt<Answer>(target: Target, request: ApiRequest): Promise<Answer | AckboxError> {
  const { method, path, body, traceparent, signal } = request
  const what = `${method} ${path.replace(/\?.*$/, '')}`
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
        ...(traceparent === undefined ? {} : { traceparent })
      },
      redirect: 'manual',
      signal: stop.signal,
      body: body ?? null
    })
    const text = await answer.text()
    const json = parsed(text)
    if (answer.ok && json !== undefined) return json as Answer
    return refused(what, answer, text, json)
  } catch (err) {
    signal?.throwIfAborted()
    const { message, cause } = err as Error & { cause?: { code?: string; message?: string } }
    const reason = stop.signal.aborted
      ? `no answer within ${limitMs} ms`
      : (cause?.code ?? cause?.message ?? message)
    return new AckboxError(
      `${what}: Ackbox at ${target.base.origin} cannot be reached: ${reason}`,
      { code: 'UNREACHABLE' },
      { cause: err }
    )
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', leave)
  }
}

function refused(what: string, { status, headers }: Response, text: string, json: unknown): AckboxError {
  const retryAfterMs = retryAfter(headers.get('retry-after'))
  const found = { status, retryAfterMs }
  const problem = (typeof json === 'object' && json !== null ? json : {}) as Partial<Refusal> & {
    title?: string
  }
  if (typeof problem.code !== 'string')
    return new AckboxError(`${what} was answered ${status}, but not by Ackbox: ${text.slice(0, 200)}`, found)
  const { code, title = '', detail, pointer, errors } = problem
  const places = errors ?? (detail === undefined ? [] : [{ detail, pointer: pointer ?? '' }])
  const why = places.map(one => (one.pointer ? `${one.pointer} ${one.detail}` : one.detail)).join('; ')
  return new AckboxError(`${what} was refused: ${status} ${code}: ${title}${why ? ` (${why})` : ''}`, {
    ...found,
    code,
    detail,
    pointer,
    errors
  })
}

/** Seconds or a date; an absurd one is ignored. */
function retryAfter(header: string | null): number | undefined {
  if (header === null) return undefined
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
