// The channels of ALARM_CHANNELS and ALARM_CHANNEL_<NAME>: their kind, their address and the alarms that each gets.
import { unreadableUrl } from '../runtime/errors.ts'
import { secretBytes } from '../domain/tokens.ts'
import { alarmKinds, type AlarmKind, type AlarmRule } from '../domain/types.ts'

const channelKinds = [
  'dingtalk',
  'feishu',
  'wecom',
  'slack',
  'pagerduty',
  'alertmanager',
  'mail',
  'webhook'
] as const
export type ChannelKind = (typeof channelKinds)[number]

const languages = ['en', 'zh'] as const
export type Language = (typeof languages)[number]

export interface ChannelConfig {
  name: string
  kind: ChannelKind
  /** Without user and secret. It may still contain a token, so it is never logged or shown. */
  url: string
  user?: string
  secret?: string
  rule: AlarmRule
  /** True: the channel gets a message when the last alarm of an incident is resolved. */
  sendResolved: boolean
  /** The time between two messages of one downstream and kind. */
  digestMs: number
  /** The language of titles and texts. Other members of a message are the same in each language. */
  language: Language
}

const hosts: [host: RegExp, kind: ChannelKind][] = [
  [/^oapi\.dingtalk\.com$/, 'dingtalk'],
  [/^open\.(?:feishu\.cn|larksuite\.com)$/, 'feishu'],
  [/^qyapi\.weixin\.qq\.com$/, 'wecom'],
  [/^hooks\.slack(?:-gov)?\.com$/, 'slack'],
  [/^events\.(?:eu\.)?pagerduty\.com$/, 'pagerduty']
]
const paths: Partial<Record<ChannelKind, string>> = {
  pagerduty: '/v2/enqueue',
  alertmanager: '/api/v2/alerts'
}
const members = [
  'url',
  'secret',
  'kinds',
  'downstreams',
  'messageCodes',
  'sendResolved',
  'digestSeconds',
  'language'
]
/** People need digests. Systems that group alarms themselves get messages sooner. */
const digestSeconds = (kind: ChannelKind): number =>
  kind === 'webhook' ? 1 : kind === 'pagerduty' || kind === 'alertmanager' ? 10 : 30

/** DingTalk, Feishu and WeCom are chats of China. Lark is Feishu outside China. */
const defaultLanguage = ({ kind, url }: ChannelAddress): Language =>
  ['dingtalk', 'feishu', 'wecom'].includes(kind) && !new URL(url).hostname.endsWith('.larksuite.com')
    ? 'zh'
    : 'en'

export const channelName = /^[a-z0-9][a-z0-9-]{0,31}$/

export function matches(
  rule: AlarmRule,
  alarm: { kind: AlarmKind; downstream: string; messageCode: string }
): boolean {
  const { kinds, downstreams, messageCodes } = rule
  return (
    (kinds?.includes(alarm.kind) ?? true) &&
    (downstreams?.includes(alarm.downstream) ?? true) &&
    (messageCodes?.includes(alarm.messageCode) ?? true)
  )
}

/** Parses a channel from its URL or its object. Returns text for an error; the text never contains the URL. */
export function parseChannel(name: string, given: unknown): ChannelConfig | string {
  if (typeof given === 'string') return parseChannel(name, { url: given })
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    return 'must be a URL in quotes, or an object with the member url'
  const options = given as Record<string, unknown>
  const unknown = Object.keys(options).find(member => !members.includes(member))
  if (unknown !== undefined)
    return `has the unknown member ${JSON.stringify(unknown)}: the members are ${members.join(', ')}`
  const { url, secret, sendResolved, digestSeconds: seconds, language } = options
  if (secret !== undefined && (typeof secret !== 'string' || secret === '')) return 'secret must be text'
  if (sendResolved !== undefined && typeof sendResolved !== 'boolean')
    return 'sendResolved must be true or false'
  if (seconds !== undefined && !isSeconds(seconds))
    return 'digestSeconds must be a whole number from 1 to 86400'
  const chosen = languages.find(each => each === language)
  if (language !== undefined && chosen === undefined) return `language must be one of ${languages.join(', ')}`
  const rule = parseRule(options)
  if (typeof rule === 'string') return rule
  const place = parseUrl(url, secret)
  if (typeof place === 'string') return place
  // Without it the alert ends an hour after its last message, and is told as resolved while deliveries are still FAILED.
  if (place.kind === 'alertmanager' && sendResolved === false)
    return 'must not have sendResolved false: Alertmanager ends an alert that is not sent again; send_resolved of its receivers decides'
  // An open alert is sent again every 5 minutes, but not within the digest. A long digest would end it, too.
  if (place.kind === 'alertmanager' && seconds !== undefined && seconds > 300)
    return 'must not have digestSeconds above 300 for Alertmanager, which ends an alert that is not sent again; group_interval of its routes makes messages rarer'
  return {
    name,
    ...place,
    rule,
    sendResolved: sendResolved ?? ['pagerduty', 'alertmanager'].includes(place.kind),
    digestMs: (seconds ?? digestSeconds(place.kind)) * 1_000,
    language: chosen ?? defaultLanguage(place)
  }
}

const isSeconds = (value: unknown): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= 86_400

function parseRule(options: Record<string, unknown>): AlarmRule | string {
  const rule: AlarmRule = {}
  for (const member of ['kinds', 'downstreams', 'messageCodes'] as const) {
    const value = options[member]
    if (value === undefined) continue
    if (!Array.isArray(value) || value.length === 0 || !value.every(each => typeof each === 'string'))
      return `${member} must be a list of texts`
    const unknownKind =
      member === 'kinds' ? value.find(each => !alarmKinds.some(kind => kind === each)) : undefined
    if (unknownKind !== undefined)
      return `names the unknown kind ${JSON.stringify(unknownKind)}: the kinds are ${alarmKinds.join(', ')}`
    Object.assign(rule, { [member]: value })
  }
  return rule
}

type ChannelAddress = Pick<ChannelConfig, 'kind' | 'url' | 'user' | 'secret'>

function parseUrl(given: unknown, secret: string | undefined): ChannelAddress | string {
  if (typeof given !== 'string') return 'must have the member url, a URL in quotes'
  const [, prefix, rest = given] = /^([a-z]+)\+(https?:.*)$/s.exec(given) ?? []
  if (prefix !== undefined && !channelKinds.some(kind => kind === prefix && kind !== 'mail'))
    return `begins with an unknown kind: the kinds are ${channelKinds.join(', ')}`
  if (!/^\s*(https?|smtps?):\/\//i.test(rest)) return 'must start with https://, http://, smtp:// or smtps://'
  const isMail = /^\s*smtp/i.test(rest)
  if (!URL.canParse(rest)) return unreadableUrl(isMail ? mailExample : 'https://:secret@host/path')
  const url = new URL(rest)
  let user: string, password: string
  try {
    user = decodeURIComponent(url.username)
    password = decodeURIComponent(url.password)
  } catch {
    return 'holds a % that is not followed by two hexadecimal digits'
  }
  url.username = url.password = ''
  const kind = isMail ? 'mail' : ((prefix as ChannelKind | undefined) ?? kindOf(url))
  if (kind !== 'mail' && (url.pathname === '/' || url.pathname === '')) url.pathname = paths[kind] ?? '/'
  const place: ChannelAddress = {
    kind,
    url: url.href,
    ...(user === '' ? {} : { user }),
    ...(secret || password ? { secret: secret ?? password } : {})
  }
  return wrongPlace(place, url) ?? place
}

function kindOf(url: URL): ChannelKind {
  if (url.pathname.endsWith('/api/v2/alerts')) return 'alertmanager'
  return hosts.find(([host]) => host.test(url.hostname))?.[1] ?? 'webhook'
}

function wrongPlace({ kind, secret }: ChannelAddress, url: URL): string | undefined {
  if (kind === 'pagerduty' && secret === undefined)
    return 'needs the routing key as secret: https://:ROUTING_KEY@events.pagerduty.com'
  if (kind === 'mail') return wrongMail(url)
  if (kind === 'webhook' && secret !== undefined && secretBytes(secret) < 24)
    return 'secret must be whsec_ and base64 of 24 bytes or more'
  return undefined
}

const mailExample = 'smtp://host:587/?from=ackbox@example.com&to=ops@example.com'

function wrongMail(url: URL): string | undefined {
  const { from, to } = mailAddresses(url)
  if (from === '' || to.length === 0) return `needs from and to: ${mailExample}`
  if (!isMailAddress(from)) return `has a from that is not a mail address: ${mailExample}`
  if (!to.every(isMailAddress))
    return `has a to that is no mail address, or no list of them with commas: ${mailExample}`
  return undefined
}

/** `ops@example.com`, or with a name: `Ackbox <ops@example.com>`. */
const isMailAddress = (text: string): boolean => {
  const [, named = text] = /^(?:"[^"]*"|[^"<>(),:;@]*) *<([^<>]*)>$/.exec(text) ?? []
  return /^[^\s<>()",:;@]+@[^\s<>()",:;@]+$/.test(named)
}

export function mailAddresses(url: URL): { from: string; to: string[] } {
  const query = queryOf(url)
  const to = query.getAll('to').flatMap(each => each.split(','))
  return { from: (query.get('from') ?? '').trim(), to: to.map(each => each.trim()).filter(Boolean) }
}

/** The query of a channel's URL. A `+` is a plus, as in `ops+alarms@example.com`: `searchParams` would read a space. */
export const queryOf = (url: URL): URLSearchParams => new URLSearchParams(url.search.replaceAll('+', '%2B'))
