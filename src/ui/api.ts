// Calls of the public API, with the cookie of the session and its token.
import { keyOf, sessionAfter, type Session } from './session.ts'
import { language, session, setClock, texts } from './state.ts'

/** A refusal of the API, with its stable code. */
export class ApiRefusal extends Error {
  readonly code: string
  readonly status: number
  /** When the server asks for the call again. */
  readonly retryAfterMs: number | undefined
  constructor(status: number, code: string, message: string, retryAfterMs?: number) {
    super(message)
    this.status = status
    this.code = code
    this.retryAfterMs = retryAfterMs
  }
}

interface ProblemShape {
  code?: string
  title?: string
  detail?: string
}

/** Builds a query string, without members that are undefined or empty. */
export function query(members: Record<string, string | number | boolean | undefined>): string {
  const pairs = Object.entries(members).flatMap(([name, value]) =>
    value === undefined || value === '' ? [] : [[name, String(value)]]
  )
  return pairs.length === 0 ? '' : `?${new URLSearchParams(pairs).toString()}`
}

/** Longer than the API needs for any answer. */
const readMs = 40_000

/**
 * Reads the session again: in another tab somebody may have signed in or out since. Dropped if the session has changed in this tab
 * meanwhile.
 */
export async function readSession(): Promise<void> {
  const before = session.value
  const read = JSON.parse(await send('GET', '/session')) as Session
  if (session.value === before) session.value = sessionAfter(before, read)
}

/**
 * After a new sign-in in another tab, the token of this tab is refused before anything is done. The call is then sent again, if it is
 * still by the same key.
 */
async function call(...request: Parameters<typeof send>): Promise<string> {
  const before = session.value
  try {
    return await send(...request)
  } catch (error) {
    if (!(error instanceof ApiRefusal) || error.code !== 'CSRF') throw error
    await readSession()
    if (!session.value.signedIn) throw error
    if (keyOf(session.value) !== keyOf(before))
      throw new ApiRefusal(error.status, error.code, texts.value.signIn.notDone(session.value.name ?? ''))
    return await send(...request)
  }
}

/** A page reads several answers at once. A key with a limit may get fewer of them in a second. */
const mostRepeats = 3
const mostPauseMs = 5_000

/** Sends a GET again that came too early for the limit of its key (429). */
async function read(path: string): Promise<string> {
  for (let repeats = 0; ; repeats++) {
    try {
      return await call('GET', path)
    } catch (error) {
      const { status, retryAfterMs = mostPauseMs } = error as ApiRefusal
      if (status !== 429 || retryAfterMs > mostPauseMs || repeats === mostRepeats) throw error
      await new Promise(resolve => setTimeout(resolve, retryAfterMs))
    }
  }
}

async function send(method: string, path: string, body?: unknown, raw?: string): Promise<string> {
  const before = session.value
  const headers: Record<string, string> = { 'accept-language': language.value }
  const text = raw ?? (body === undefined ? undefined : JSON.stringify(body))
  if (text !== undefined) headers['content-type'] = 'application/json'
  const { csrf } = before
  if (method !== 'GET' && csrf !== undefined) headers['ackbox-csrf'] = csrf
  let answer: Response
  let received: string
  try {
    answer = await fetch(path, {
      method,
      headers,
      credentials: 'same-origin',
      ...(text === undefined ? {} : { body: text }),
      // A connection can be lost without an error. Changes get no timeout: it would report a completed change as failed.
      ...(method === 'GET' ? { signal: AbortSignal.timeout(readMs) } : {})
    })
    received = await answer.text()
  } catch {
    throw new ApiRefusal(0, 'OFFLINE', texts.value.common.offline)
  }
  const date = Date.parse(answer.headers.get('date') ?? '')
  if (!Number.isNaN(date)) setClock(date)
  if (answer.ok) return received
  let problem: ProblemShape = {}
  try {
    problem = JSON.parse(received) as ProblemShape
  } catch {
    // The answer is not from Ackbox but from a proxy.
  }
  // A late answer to a call of an earlier session does not end the present one.
  if (answer.status === 401 && before.signedIn && before.auth && session.value === before)
    session.value = { ...before, signedIn: false }
  const words = [problem.title ?? `HTTP ${answer.status}`, problem.detail].filter(Boolean).join(': ')
  const seconds = Number(answer.headers.get('retry-after') ?? Number.NaN)
  const retryAfterMs = Number.isNaN(seconds) ? undefined : seconds * 1_000
  throw new ApiRefusal(answer.status, problem.code ?? String(answer.status), words, retryAfterMs)
}

export const get = async <Answer>(path: string): Promise<Answer> => JSON.parse(await read(path)) as Answer
/** The unchanged text of the answer: JSON.parse would change the numbers of a body. */
export const getText = (path: string): Promise<string> => read(path)
export const post = async <Answer>(path: string, body: unknown = {}): Promise<Answer> =>
  JSON.parse(await call('POST', path, body)) as Answer
export const postText = async <Answer>(path: string, text: string): Promise<Answer> =>
  JSON.parse(await call('POST', path, undefined, text)) as Answer
export const patch = async <Answer>(path: string, body: unknown): Promise<Answer> =>
  JSON.parse(await call('PATCH', path, body)) as Answer
export const remove = async <Answer>(path: string): Promise<Answer> =>
  JSON.parse(await call('DELETE', path)) as Answer
