// Rows become one POST /tasks/batch; its answer becomes a verdict for each row.
import { request } from 'undici'
import { decodedText, tolerantAgent } from '../transport/http/tolerant-agent.ts'
import { retryAfter } from '../producer/call.ts'
import { messageOf, problemBody } from '../runtime/errors.ts'
import { kinds, type Member } from './columns.ts'
import { longestPostsMs, type RelayRow, type RowVerdict } from './source.ts'

export interface PostTarget {
  /** The URL of Ackbox, without `/tasks/batch`. */
  url: string
  key: string | undefined
  timeoutMs: number
}

/** Ackbox accepts nothing now. Every row stays. */
export class TargetAway extends Error {
  override name = 'TargetAway'
  readonly retryAfterMs: number | undefined

  constructor(message: string, retryAfterMs?: number, options?: ErrorOptions) {
    super(message, options)
    this.retryAfterMs = retryAfterMs
  }
}

/** Ackbox permanently refuses this key or this URL, or another server does so before it. */
export class TargetRefuses extends TargetAway {
  override name = 'TargetRefuses'
}

/** The most bytes in one request. The API accepts 8 MiB. */
const mostBytes = 6 * 1_048_576

interface Part {
  index: number
  text: string
  orderingKey: string | null
}

/**
 * Posts the rows in their order. Behind a row that is kept, no row of its key is rejected, or posted by a later request. A row that is not
 * a valid task is rejected here, so that it does not fail the other rows. Throws TargetAway if Ackbox gives no final answer. Rows with an
 * answer then stay too: their taskNo makes a repeated post harmless.
 */
export async function postRows(target: PostTarget, rows: readonly RelayRow[]): Promise<RowVerdict[]> {
  const end = performance.now() + longestPostsMs
  const texts = rows.map(taskText)
  const verdicts = texts.map((text): RowVerdict | undefined => (typeof text === 'string' ? undefined : text))
  const keptKeys = new Set<string>()
  let isThere: Promise<boolean> | undefined
  /** In halves where one member makes Ackbox, or a firewall before it, refuse the whole request: that finds it. */
  const post = async (all: readonly Part[]): Promise<void> => {
    const part = all.filter(row => row.orderingKey === null || !keptKeys.has(row.orderingKey))
    if (part.length === 0 || performance.now() > end) return
    const answers = await postPart(
      target,
      part.map(row => row.text)
    )
    if (answers instanceof TargetAway) {
      // Something between answers. It refuses what is in these rows if it lets another request through, and all requests if not.
      if (!(await (isThere ??= isReached(target)))) throw answers
      const [only] = part
      if (part.length === 1 && only) {
        verdicts[only.index] = { kind: 'kept', problem: answers.message }
        if (only.orderingKey !== null) keptKeys.add(only.orderingKey)
        return
      }
    }
    if (answers === 'refused' || answers instanceof TargetAway) {
      const middle = Math.ceil(part.length / 2)
      await post(part.slice(0, middle))
      return await post(part.slice(middle))
    }
    part.forEach(({ index, orderingKey }, at) => {
      const answer = answers[at]
      const isBehind = orderingKey !== null && keptKeys.has(orderingKey)
      // It may have been refused because it waits for the task that is kept.
      verdicts[index] = isBehind && answer?.kind === 'rejected' ? { ...answer, kind: 'kept' } : answer
      if (answer?.kind === 'kept' && orderingKey !== null) keptKeys.add(orderingKey)
    })
  }
  let part: Part[] = []
  let bytes = 0
  const flush = async (): Promise<void> => {
    const full = part
    part = []
    bytes = 0
    await post(full)
  }
  for (const [index, text] of texts.entries()) {
    if (typeof text !== 'string') continue
    const length = Buffer.byteLength(text)
    if (part.length > 0 && bytes + length > mostBytes) await flush()
    part.push({ index, text, orderingKey: rows[index]?.orderingKey ?? null })
    bytes += length
  }
  if (part.length > 0) await flush()
  return verdicts.map(verdict => verdict ?? { kind: 'kept' })
}

const members = Object.keys(kinds) as Member[]

/** The row as a member of a batch, with its body unchanged. A verdict if the row cannot be a member. */
export function taskText(row: RelayRow): string | RowVerdict {
  if (row.problem !== undefined) return { kind: row.stays ? 'kept' : 'rejected', problem: row.problem }
  const refusal = members.find(name => kinds[name] === 'json' && !isJson(row[name]))
  if (refusal !== undefined) {
    const problem = problemBody('NOT_JSON', `${refusal} is not JSON`, `/${refusal}`)
    return { kind: 'rejected', problem: JSON.stringify(problem) }
  }
  const texts = members.flatMap(name => {
    const value = row[name]
    return value === null ? [] : `"${name}":${kinds[name] === 'json' ? value : JSON.stringify(value)}`
  })
  if (row.delayMs !== null) texts.push(`"delay":${JSON.stringify(row.delayMs)}`)
  return `{${texts.join()}}`
}

function isJson(value: RelayRow[Member]): boolean {
  if (value === null) return true
  try {
    JSON.parse(String(value))
    return true
  } catch {
    return false
  }
}

/** A request without tasks, which Ackbox itself always answers. False: another server answers it, or none. */
async function isReached(target: PostTarget): Promise<boolean> {
  try {
    const { body } = await send(target, '{"tasks":[]}')
    return isProblem(body) || resultsOf(body) !== undefined
  } catch (err) {
    if (err instanceof TargetAway) return false
    throw err
  }
}

/** The verdicts, or 'refused' if the request has to be divided. TargetAway: the answer is not that of Ackbox. */
async function postPart(
  target: PostTarget,
  tasks: readonly string[]
): Promise<RowVerdict[] | 'refused' | TargetAway> {
  const { status, body, retryAfterMs } = await send(target, `{"tasks":[${tasks.join()}]}`)
  if (status === 200) return verdictsOf(body, tasks.length)
  const isOne = tasks.length === 1
  // An error of Ackbox that only these tasks have: it answers 500 if each of them fails alone.
  if (status === 500 && isProblem(body)) return tasks.map(() => ({ kind: 'kept', problem: body }))
  if (!isFinal(status) || (status !== 413 && !isProblem(body))) {
    const Away = [401, 403, 404, 405, 421].includes(status) ? TargetRefuses : TargetAway
    const away = new Away(`${target.url} answered ${status}: ${body.slice(0, 300)}`, retryAfterMs)
    if (mayBeOfFirewall(status) && !isProblem(body)) return away
    throw away
  }
  return isOne ? [{ kind: 'rejected', problem: ofItsRow(jsonOf(body) ?? body, 0) }] : 'refused'
}

/** True: the same bytes always get this refusal. A wrong key or an overload is not the fault of the row. */
const isFinal = (status: number): boolean =>
  status >= 400 && status < 500 && ![401, 403, 404, 405, 408, 421, 425, 429].includes(status)

/** Statuses with which firewalls refuse a request for what is in it. An overload, a timeout or a missing sign-in is not about the rows. */
const mayBeOfFirewall = (status: number): boolean =>
  status >= 400 && status < 500 && ![401, 407, 408, 425, 429].includes(status)

/** A proxy, a firewall or a TLS port answers with another body, which says nothing about the rows. Only for 413 it does. */
const isProblem = (body: string): boolean =>
  typeof (jsonOf(body) as { code?: unknown } | null | undefined)?.code === 'string'

/** The same for one task of a batch, where 403 is about the task's messageCode. */
const isFinalForTask = (status: number): boolean =>
  status >= 400 && status < 500 && ![401, 408, 425, 429].includes(status)

function verdictsOf(body: string, count: number): RowVerdict[] | TargetAway {
  const results = resultsOf(body)
  if (results?.length !== count) {
    const away = new TargetAway(`the answer is not that of Ackbox: ${body.slice(0, 300)}`)
    // Some firewalls refuse with 200 and a page.
    if (results === undefined) return away
    throw away
  }
  return results.map((result, index): RowVerdict => {
    const status = (result as { status?: unknown } | null)?.status
    if (status === 200 || status === 201) return { kind: 'accepted', isNew: status === 201 }
    if (typeof status === 'number' && isFinalForTask(status))
      return { kind: 'rejected', problem: ofItsRow(result, index) }
    // 503: another process has its handler, or that of a row before it.
    return status === 500 || status === 503
      ? { kind: 'kept', problem: ofItsRow(result, index) }
      : { kind: 'kept' }
  })
}

/** Rewrites the pointers of a problem relative to its row: its place in a batch does not help to correct the row. */
function ofItsRow(problem: unknown, index: number): string {
  if (typeof problem === 'string') return problem
  const place = `/tasks/${index}`
  return JSON.stringify(problem, (name, value: unknown) =>
    name === 'pointer' && typeof value === 'string' && `${value}/`.startsWith(`${place}/`)
      ? value.slice(place.length)
      : value
  )
}

function resultsOf(body: string): unknown[] | undefined {
  const answer = jsonOf(body) as { results?: unknown } | null | undefined
  return Array.isArray(answer?.results) ? answer.results : undefined
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    return undefined
  }
}

const dispatcher = tolerantAgent()

async function send(
  { url, key, timeoutMs }: PostTarget,
  body: string
): Promise<{ status: number; body: string; retryAfterMs: number | undefined }> {
  try {
    const answer = await request(new URL('tasks/batch', url.endsWith('/') ? url : `${url}/`), {
      method: 'POST',
      dispatcher,
      headers: { 'content-type': 'application/json', ...(key ? { authorization: `Bearer ${key}` } : {}) },
      body,
      signal: AbortSignal.timeout(timeoutMs)
    })
    return {
      status: answer.statusCode,
      body: await decodedText(answer.headers, answer.body),
      retryAfterMs: retryAfter(answer.headers['retry-after']?.toString())
    }
  } catch (err) {
    const { name, code } = err as { name?: string; code?: string }
    // The `code` of a timeout is 23, the number of the DOMException.
    const reason = name === 'TimeoutError' ? `no answer within ${timeoutMs} ms` : (code ?? messageOf(err))
    throw new TargetAway(`${url} cannot be reached: ${reason}`, undefined, { cause: err })
  }
}
