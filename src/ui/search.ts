// The search box: words and `name:value` filters in one text, which is also in the address of the page.

/** A part of the text that was not understood. */
export type SearchProblem =
  /** No filter has this name. `isWord`: the text can be a taskNo, and is searched as one. */
  | { code: 'UNKNOWN'; name: string; isWord: boolean }
  | { code: 'SECOND_WORD'; word: string }
  | { code: 'TWICE'; name: string }
  | { code: 'NO_VALUE'; name: string }
  | { code: 'NO_TIME'; text: string }
  | { code: 'OPEN_QUOTE'; text: string }
  /** A filter, and the other filter that it needs. */
  | { code: 'MISSING'; name: string; needs: string }

export interface Search {
  /** Members of the query of `GET /tasks`. */
  filter: Record<string, string>
  /** A word without a name: a taskNo, or its beginning. A webhook-id is a filter instead. */
  word: string
  problems: SearchProblem[]
}

/** False: without what was not understood, the search would find more than was asked for. */
export const isSearched = ({ problems }: Search): boolean =>
  problems.every(one => one.code === 'UNKNOWN' && one.isWord)

/** The names in the search box, with the names in the API. */
const names: Record<string, string> = {
  status: 'status',
  code: 'messageCode',
  messagecode: 'messageCode',
  downstream: 'downstream',
  scene: 'sceneType',
  scenetype: 'sceneType',
  biztype: 'bizType',
  bizkey: 'bizKey',
  reason: 'reason',
  why: 'lastReason',
  lastreason: 'lastReason',
  by: 'createdBy',
  createdby: 'createdBy',
  from: 'from',
  to: 'to'
}
export const filterNames = [
  'status',
  'code',
  'downstream',
  'reason',
  'why',
  'bizType',
  'bizKey',
  'scene',
  'by',
  'from',
  'to'
]

const memberOf = (name: string): string | undefined =>
  Object.hasOwn(names, name.toLowerCase()) ? names[name.toLowerCase()] : undefined

const webhookId = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}_[a-z][a-z0-9-]*$/

/** A quoted part. In it, `\"` is a quote and `\\` is a backslash. Without a second quote, it ends with the text. */
const quotedPart = /"((?:[^"\\]|\\.?)*)(?:"|$)/g
const tokensOf = (text: string): string[] => text.match(/(?:[^\s"]|"(?:[^"\\]|\\.?)*(?:"|$))+/g) ?? []
const unquoted = (token: string): string =>
  token.replaceAll(quotedPart, (_, inner: string) => inner.replaceAll(/\\(["\\])/g, '$1'))
const isOpen = (token: string): boolean => token.replaceAll(/"(?:[^"\\]|\\.)*"/g, '').includes('"')
const quoted = (value: string): string =>
  /[\s"]/.test(value) ? `"${value.replaceAll(/["\\]/g, String.raw`\$&`)}"` : value

/**
 * `from:2h` counts back from `now`. Texts with spaces are in quotes. `codes`: the existing messageCodes. A default taskNo begins with
 * one of them.
 */
export function parseSearch(text: string, now: Date, codes: readonly string[] = []): Search {
  const found: Search = { filter: {}, word: '', problems: [] }
  const { problems } = found
  const setWord = (word: string): void => {
    if (found.word !== '') problems.push({ code: 'SECOND_WORD', word })
    else found.word = word
  }
  const setFilter = (name: string, member: string, value: string): void => {
    if (found.filter[member] !== undefined) problems.push({ code: 'TWICE', name })
    else found.filter[member] = value
  }
  for (const token of tokensOf(text)) {
    const [, name = '', quotedValue = ''] = /^([A-Za-z]+):(.*)$/s.exec(token) ?? []
    const member = memberOf(name)
    if (isOpen(token)) problems.push({ code: 'OPEN_QUOTE', text: token })
    else if (webhookId.test(token)) setFilter('webhook-id', 'webhookId', token)
    else if (name === '' || (member === undefined && quotedValue === '')) setWord(unquoted(token))
    else if (member === undefined) {
      // A taskNo can contain a colon too. It is searched, and a text like a filter is also reported as unknown.
      const isWord = /^[A-Za-z0-9][A-Za-z0-9._:-]*$/.test(token)
      if (isWord) setWord(token)
      if (!isWord || (token.split(':').length === 2 && !codes.includes(name)))
        problems.push({ code: 'UNKNOWN', name, isWord })
    } else {
      const value = unquoted(quotedValue)
      const isTime = member === 'from' || member === 'to'
      const time = isTime ? timeOf(value, now) : undefined
      if (value === '') problems.push({ code: 'NO_VALUE', name })
      else if (isTime && time === undefined) problems.push({ code: 'NO_TIME', text: token })
      else setFilter(name, member, time ?? (member === 'status' ? value.toUpperCase() : value))
    }
  }
  if (found.filter['bizKey'] !== undefined && found.filter['bizType'] === undefined)
    problems.push({ code: 'MISSING', name: 'bizKey', needs: 'bizType' })
  return found
}

const dayMs = 86_400_000
/**
 * The filter of POST /tasks/redeliver that matches this search. Undefined: no such filter exists, since a part of the search was not
 * understood, or it is for another status than FAILED or for a single delivery. Without a time, the list is of the last day, but for
 * FAILED or a business key of all times.
 */
export function redeliverFilter(
  { filter, word, problems }: Search,
  now: Date
): Record<string, string> | undefined {
  const { status, webhookId, ...rest } = filter
  if ((status ?? 'FAILED') !== 'FAILED' || webhookId !== undefined || problems.length > 0) return undefined
  const to = rest['to'] === undefined ? now.getTime() : Date.parse(rest['to'])
  const from = new Date(to - dayMs)
  return {
    ...(rest['bizKey'] === undefined && status === undefined ? { from: from.toISOString() } : {}),
    ...rest,
    ...(word === '' ? {} : { taskNoPrefix: word })
  }
}

const unitMs: Record<string, number> = { m: 60_000, h: 3_600_000, d: dayMs, w: 604_800_000 }
const isoForm = /^(\d{4})-(\d\d)-(\d\d)(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?)?$/

/** A time before `now`, or a date with or without a time. Without an offset it is local, as each clock of the page. */
function timeOf(value: string, now: Date): string | undefined {
  const [, count = '', unit = ''] = /^(\d+)([mhdw])$/.exec(value) ?? []
  const ms = unitMs[unit]
  if (ms !== undefined) return new Date(Math.max(0, now.getTime() - Number(count) * ms)).toISOString()
  const [date, year, month, day] = isoForm.exec(value) ?? []
  // Date.parse takes February 31 for a day of March.
  if (
    date === undefined ||
    new Date(`${year}-${month}-01`).getUTCMonth() !== new Date(`${year}-${month}-${day}`).getUTCMonth()
  )
    return undefined
  const at = Date.parse(date.length === 10 ? `${date}T00:00` : date.replace(' ', 'T'))
  return Number.isNaN(at) ? undefined : new Date(at).toISOString()
}

/** The text with `name:value` at its end, without earlier filters of `name`. */
export function withFilter(text: string, name: string, value: string): string {
  const rest = tokensOf(text).filter(token => memberOf(token.split(':')[0] ?? '') !== memberOf(name))
  return [...rest, `${name}:${quoted(value)}`].join(' ')
}
