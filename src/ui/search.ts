// The search box: words and `name:value` filters in one text, which is also in the address of the page.

export interface Search {
  /** Members of the query of `GET /tasks`. */
  filter: Record<string, string>
  /** A word without a name: a taskNo, or its beginning. A webhook-id is a filter instead. */
  word: string
  /** Names that are not a filter. */
  unknown: string[]
  /** A filter, and the other filter that it needs. */
  missing?: { name: string; needs: string }
}

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

const webhookId = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}_[a-z][a-z0-9-]*$/

/**
 * `from:2h` counts back from `now`. Texts with spaces are in quotes. `codes`: the existing messageCodes. A default taskNo begins with
 * one of them.
 */
export function parseSearch(text: string, now: Date, codes: readonly string[] = []): Search {
  const found: Search = { filter: {}, word: '', unknown: [] }
  for (const [token] of text.matchAll(/(?:[^\s"]|"[^"]*")+/g)) {
    const [, name = '', quoted = ''] = /^([A-Za-z]+):(.+)$/.exec(token) ?? []
    const value = quoted.replaceAll('"', '')
    if (webhookId.test(token)) {
      found.filter['webhookId'] = token
      continue
    }
    if (name === '') found.word = token.replaceAll('"', '')
    else if (names[name.toLowerCase()] === undefined) {
      // A taskNo can contain a colon too. It is searched, and a text like a filter is also reported as unknown.
      const isTaskNo = /^[A-Za-z0-9][A-Za-z0-9._:-]*$/.test(token)
      if (isTaskNo) found.word = token
      if (!isTaskNo || (token.split(':').length === 2 && !codes.includes(name))) found.unknown.push(name)
    } else {
      const member = names[name.toLowerCase()] ?? name
      found.filter[member] =
        member === 'from' || member === 'to'
          ? time(value, now)
          : member === 'status'
            ? value.toUpperCase()
            : value
    }
  }
  if (found.filter['bizKey'] !== undefined && found.filter['bizType'] === undefined)
    found.missing = { name: 'bizKey', needs: 'bizType' }
  return found
}

const dayMs = 86_400_000
/**
 * The filter of POST /tasks/redeliver that matches this search. Undefined: no such filter exists, since the search is for another
 * status than FAILED or for a single delivery. Without a time, the list is of the last day, but for a business key of all times.
 */
export function redeliverFilter(
  { filter, word, missing }: Search,
  now: Date
): Record<string, string> | undefined {
  const { status = 'FAILED', webhookId, ...rest } = filter
  if (status !== 'FAILED' || webhookId !== undefined || missing) return undefined
  const to = rest['to'] === undefined ? now.getTime() : Date.parse(rest['to'])
  // The value is not a time. The list shows the error.
  if (Number.isNaN(to)) return undefined
  const from = new Date(to - dayMs)
  return {
    ...(rest['bizKey'] === undefined ? { from: from.toISOString() } : {}),
    ...rest,
    ...(word === '' ? {} : { taskNoPrefix: word })
  }
}

function time(value: string, now: Date): string {
  const [, count, unit] = /^(\d+)(m|h|d|w)$/.exec(value) ?? []
  if (count === undefined) return Number.isNaN(Date.parse(value)) ? value : new Date(value).toISOString()
  const ms = { m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 }[unit as 'm' | 'h' | 'd' | 'w']
  return new Date(Math.max(0, now.getTime() - Number(count) * ms)).toISOString()
}

/** The text with `name:value` at its end, without earlier filters of `name`. */
export function withFilter(text: string, name: string, value: string): string {
  const rest = (text.match(/(?:[^\s"]|"[^"]*")+/g) ?? []).filter(
    token => !token.toLowerCase().startsWith(`${name.toLowerCase()}:`)
  )
  return [...rest, `${name}:${/\s/.test(value) ? `"${value}"` : value}`].join(' ')
}
