// The search box: words, and `name:value` filters, all in one text that the address of the page holds.

export interface Search {
  /** Members of the query of `GET /tasks`. */
  filter: Record<string, string>
  /** Words without a name: a taskNo, or its beginning. A webhook-id is a filter. */
  word: string
  /** Names that are no filter. */
  unknown: string[]
  /** A filter that another one needs beside it. */
  missing?: { name: string; needs: string }
}

/** What people type, and what the API calls it. */
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
 * `from:2h` counts back from `now`; texts with spaces stand in quotes. `codes`: the messageCodes that there are, with which the
 * default number of a task begins.
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
      // A taskNo may have a colon too: it is looked for, and what looks like a filter is said to be none.
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
 * The filter of POST /tasks/redeliver that takes what this search shows; undefined: there is none, it shows others than FAILED
 * ones or one delivery alone. Without a time the list is of the last day, of one business key of all times.
 */
export function redeliverFilter(
  { filter, word, missing }: Search,
  now: Date
): Record<string, string> | undefined {
  const { status = 'FAILED', webhookId, ...rest } = filter
  if (status !== 'FAILED' || webhookId !== undefined || missing) return undefined
  const to = rest['to'] === undefined ? now.getTime() : Date.parse(rest['to'])
  // No time: the list says so.
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

/** The text with `name:value` in place of what was said of `name` before, or of the word that was begun. */
export function withFilter(text: string, name: string, value: string): string {
  const rest = (text.match(/(?:[^\s"]|"[^"]*")+/g) ?? []).filter(
    token => !token.toLowerCase().startsWith(`${name.toLowerCase()}:`)
  )
  return [...rest, `${name}:${/\s/.test(value) ? `"${value}"` : value}`].join(' ')
}
