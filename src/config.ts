// Every setting of Ackbox, in one object. `.env.example` and `docs/config.md` are printed from it.
import { isIP, isIPv6 } from 'node:net'
import { z } from 'zod'

export const roles = ['api', 'worker', 'dispatcher'] as const
export type Role = (typeof roles)[number]

export interface Config {
  databaseUrl?: string
  redisUrl?: string
  roles: Set<Role>
  host: string
  port: number
  /** Where downstreams reach `/callback`; no slash at the end. */
  publicUrl: string
  handlersDir?: string
  sweepMs: number
  /** Unset: the longest timeout of a downstream + 5 s. */
  shutdownMs?: number
  leaseMarginMs: number
  alarmWebhookUrl?: string
  alarmWebhookSecret?: string
  retentionDays: number
  logLevel: string
  /** As Fastify's `trustProxy`: all, none, a number of hops, or a list of addresses. */
  trustProxy: boolean | string | number
  redisPrefix: string
  pgPool: number
  secret?: string
  secretPrevious?: string
  auth: boolean
  /** CIDRs and host:port pairs. Undefined: not set; empty: nothing beyond the public internet. */
  egressAllow: string[] | undefined
  demo: boolean
  dataDir: string
  failpoints?: string
  /** No DATABASE_URL: PostgreSQL of our own under `dataDir`. */
  embedded: boolean
  /** What is odd but no reason not to start, one line each. */
  warnings: string[]
}

/** Settings are wrong; the message says which and what to do, one line each. */
export class SettingError extends Error {
  override name = 'SettingError'
}

const whole = (min: number, max: number) => {
  const error = `must be a whole number from ${min} to ${max}`
  const text = z.string().regex(/^\d{1,9}$/, error)
  return text.transform(Number).pipe(z.number().min(min, error).max(max, error))
}
const oneOf = <const T extends readonly string[]>(words: T) =>
  z.enum(words, `must be one of ${words.join(', ')}`)
const address = (...protocols: string[]) =>
  z.string().refine(text => URL.canParse(text) && protocols.includes(new URL(text).protocol), {
    error: `must be a URL that starts with ${protocols.map(p => `${p}//`).join(' or ')}`
  })
const list = (text: string) =>
  text
    .split(',')
    .map(part => part.trim())
    .filter(part => part !== '')

/** `unset` says what happens without the setting, where that is more than a value. */
const settings = z.object({
  DATABASE_URL: address('postgres:', 'postgresql:')
    .optional()
    .describe('PostgreSQL 14 or newer, the one source of truth.')
    .meta({
      unset: 'a PostgreSQL of its own under `DATA_DIR`',
      example: 'postgres://ackbox:password@127.0.0.1:5432/ackbox'
    }),
  REDIS_URL: address('redis:', 'rediss:')
    .optional()
    .describe('Redis 6.2 or newer for BullMQ. It holds hints only: losing it loses time, never a task.')
    .meta({ unset: 'BullMQ uses the same PostgreSQL', example: 'redis://127.0.0.1:6379' }),
  SECRET: z
    .string()
    .min(32, 'is too short: 32 characters or more, e.g. from `openssl rand -base64 32`')
    .optional()
    .describe(
      'Master key: callback tokens and signing secrets are derived from it. The same in every process.'
    )
    .meta({ unset: 'made once and kept in `DATA_DIR`; required with `DATABASE_URL`' }),
  SECRET_PREVIOUS: z
    .string()
    .min(32, 'is too short: it is the former SECRET, 32 characters or more')
    .optional()
    .describe(
      'The former `SECRET` during a rotation: its tokens are still accepted and its signatures still sent.'
    ),
  ROLE: z
    .string()
    .default('api,worker,dispatcher')
    .describe('What this process does, separated by commas. Fewer than all three only with `DATABASE_URL`.'),
  HOST: z
    .string()
    .default('127.0.0.1')
    .describe('The address to listen on. `0.0.0.0` or `::` is every address; then requests need a key.'),
  PORT: whole(0, 65535).default(3000).describe('The port to listen on; 0 takes any free one.'),
  PUBLIC_URL: address('http:', 'https:')
    .optional()
    .describe('Where downstreams reach this service; `/callback` is appended.')
    .meta({ unset: '`http://HOST:PORT`', example: 'https://ackbox.example.com' }),
  AUTH: oneOf(['on', 'off'])
    .optional()
    .describe('Whether requests need an API key. `off` is accepted on a loopback `HOST` only.')
    .meta({ unset: 'off without `DATABASE_URL` on a loopback `HOST`, else on' }),
  EGRESS_ALLOW: z
    .string()
    .optional()
    .describe(
      'Addresses other than public ones that downstreams may have: CIDRs or host:port, separated by commas.'
    )
    .meta({
      unset: 'loopback and private ranges without `DATABASE_URL`, else none; empty: none',
      example: '10.2.0.0/16,warehouse.internal:8080'
    }),
  HANDLERS_DIR: z
    .string()
    .optional()
    .describe('A folder of handlers (`.js`, `.mjs`; `.ts` where Node strips types).')
    .meta({ unset: 'the handlers that come with the project', example: './handlers' }),
  LEASE_MARGIN_MS: whole(1_500, 600_000)
    .default(10_000)
    .describe('A lease lasts as long as the timeout of its downstream and this many ms.'),
  SWEEP_MS: whole(10, 60_000)
    .default(1_000)
    .describe('At most this many ms pass between two looks for what is due.'),
  SHUTDOWN_MS: whole(0, 3_600_000)
    .optional()
    .describe('How long a stopping process may finish what it has begun, in ms.')
    .meta({ unset: 'the longest timeout of a downstream + 5000' }),
  RETENTION_DAYS: whole(1, 36_500)
    .default(30)
    .describe('Tasks that ended are removed this many days after they were posted.'),
  ALARM_WEBHOOK_URL: address('http:', 'https:')
    .optional()
    .describe('Alarms are POSTed here, signed like deliveries.')
    .meta({
      unset: 'alarms are in the log and in `GET /alarms`',
      example: 'https://alerts.example.com/ackbox'
    }),
  ALARM_WEBHOOK_SECRET: z
    .string()
    .regex(/^whsec_[A-Za-z0-9+/]{32,}={0,2}$/, 'must be whsec_ and base64 of 24 bytes or more')
    .optional()
    .describe('The key that signs alarms, `whsec_…`.')
    .meta({ unset: 'derived from `SECRET`' }),
  LOG_LEVEL: oneOf(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'])
    .default('info')
    .describe('One line for each thing that ended is `info`.'),
  TRUST_PROXY: z
    .string()
    .default('off')
    .describe(
      'Whose `X-Forwarded-*` headers are believed: `off`, `on`, a number of hops, or addresses and CIDRs.'
    ),
  PG_POOL: whole(2, 500)
    .default(10)
    .describe('Connections to PostgreSQL of this process, beside those of BullMQ.'),
  REDIS_PREFIX: z
    .string()
    .regex(/^[A-Za-z0-9_{}-]{1,32}$/, 'must be 1 to 32 letters, digits, _ - { }')
    .default('ackbox')
    .describe('The names in Redis begin with it: two services may share one Redis.'),
  DEMO: oneOf(['on', 'off'])
    .optional()
    .describe(
      'The receiver of the samples, and a key for `npm run demo`. With `DATABASE_URL` only on a loopback `HOST`.'
    )
    .meta({ unset: 'on without `DATABASE_URL`, else off' }),
  DATA_DIR: z
    .string()
    .default('.ackbox')
    .describe('Where the embedded PostgreSQL and the secret it made are kept.'),
  FAILPOINTS: z
    .string()
    .optional()
    .describe(
      'For tests of this project: `name=kill|stop|throw|sleep:ms`. Refused when `NODE_ENV` is production.'
    )
})
type Settings = z.output<typeof settings>
type Env = Record<string, string | undefined>

export function readConfig(env: Env): Config {
  const given = Object.fromEntries(
    // A compose file passes `NAME=` for what is not set. Only for EGRESS_ALLOW is empty a value: nothing.
    Object.entries(env).filter(
      ([name, value]) => name in settings.shape && (value !== '' || name === 'EGRESS_ALLOW')
    )
  )
  const read = settings.safeParse(given)
  if (!read.success)
    throw new SettingError(read.error.issues.map(issue => complaint(issue, given)).join('\n'))
  const config = toConfig(read.data, misspelt(env))
  const problems = [...wrongLists(read.data), ...wrongTogether(config, env)]
  if (problems.length > 0) throw new SettingError(problems.join('\n'))
  return config
}

function complaint(issue: z.core.$ZodIssue, given: Env): string {
  const name = String(issue.path[0])
  const hidden = /SECRET|URL/.test(name) // never print a password
  return `${name} ${issue.message}${hidden ? '' : `, but is ${JSON.stringify(given[name])}`}`
}

function toConfig(s: Settings, warnings: string[]): Config {
  const embedded = s.DATABASE_URL === undefined
  const anyHost = s.HOST === '0.0.0.0' || s.HOST === '::'
  const reachedAs = anyHost ? '127.0.0.1' : isIPv6(s.HOST) ? `[${s.HOST}]` : s.HOST
  if (anyHost && s.PUBLIC_URL === undefined) {
    warnings.push(
      'PUBLIC_URL is not set: downstreams on other machines cannot send receipts; set it to the address they reach'
    )
  }
  return {
    ...(s.DATABASE_URL !== undefined && { databaseUrl: s.DATABASE_URL }),
    ...(s.REDIS_URL !== undefined && { redisUrl: s.REDIS_URL }),
    roles: new Set(list(s.ROLE) as Role[]),
    host: s.HOST,
    port: s.PORT,
    publicUrl: (s.PUBLIC_URL ?? `http://${reachedAs}:${s.PORT}`).replace(/\/+$/, ''),
    ...(s.HANDLERS_DIR !== undefined && { handlersDir: s.HANDLERS_DIR }),
    sweepMs: s.SWEEP_MS,
    ...(s.SHUTDOWN_MS !== undefined && { shutdownMs: s.SHUTDOWN_MS }),
    leaseMarginMs: s.LEASE_MARGIN_MS,
    ...(s.ALARM_WEBHOOK_URL !== undefined && { alarmWebhookUrl: s.ALARM_WEBHOOK_URL }),
    ...(s.ALARM_WEBHOOK_SECRET !== undefined && { alarmWebhookSecret: s.ALARM_WEBHOOK_SECRET }),
    retentionDays: s.RETENTION_DAYS,
    logLevel: s.LOG_LEVEL,
    trustProxy: trustProxy(s.TRUST_PROXY),
    redisPrefix: s.REDIS_PREFIX,
    pgPool: s.PG_POOL,
    ...(s.SECRET !== undefined && { secret: s.SECRET }),
    ...(s.SECRET_PREVIOUS !== undefined && { secretPrevious: s.SECRET_PREVIOUS }),
    auth: s.AUTH === undefined ? !(embedded && isLoopback(s.HOST)) : s.AUTH === 'on',
    egressAllow: s.EGRESS_ALLOW === undefined ? undefined : list(s.EGRESS_ALLOW).map(withPrefixLength),
    demo: s.DEMO === undefined ? embedded : s.DEMO === 'on',
    dataDir: s.DATA_DIR,
    ...(s.FAILPOINTS !== undefined && { failpoints: s.FAILPOINTS }),
    embedded,
    warnings
  }
}

const trustProxy = (text: string) =>
  text === 'on' ? true : text === 'off' || text === '0' ? false : /^\d+$/.test(text) ? Number(text) : text
const withPrefixLength = (text: string) => (isIP(text) ? `${text}/${isIPv6(text) ? 128 : 32}` : text)
const isLoopback = (host: string) =>
  host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'))

function isCidr(text: string): boolean {
  const [ip = '', length = '', ...rest] = text.split('/')
  if (rest.length > 0 || !/^\d{1,3}$/.test(length)) return false
  return isIP(ip) !== 0 && Number(length) <= (isIPv6(ip) ? 128 : 32)
}
const isHostPort = (text: string) => {
  const [, port = ''] = /^(?:\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):(\d{1,5})$/.exec(text) ?? []
  return port !== '' && Number(port) >= 1 && Number(port) <= 65535
}

function wrongLists(s: Settings): string[] {
  const problems: string[] = []
  const asked = list(s.ROLE)
  const strange = asked.filter(role => !(roles as readonly string[]).includes(role))
  if (asked.length === 0 || strange.length > 0) {
    problems.push(
      `ROLE must be some of ${roles.join(', ')}, separated by commas, but is ${JSON.stringify(s.ROLE)}`
    )
  }
  for (const part of list(s.EGRESS_ALLOW ?? '').map(withPrefixLength)) {
    if (isCidr(part) || isHostPort(part)) continue
    problems.push(
      `EGRESS_ALLOW must be CIDRs or host:port, separated by commas, but holds ${JSON.stringify(part)}`
    )
  }
  if (
    !/^(on|off|\d{1,2})$/.test(s.TRUST_PROXY) &&
    !list(s.TRUST_PROXY).every(part => isCidr(withPrefixLength(part)))
  ) {
    problems.push(
      `TRUST_PROXY must be off, on, a number of hops, or addresses and CIDRs, but is ${JSON.stringify(s.TRUST_PROXY)}`
    )
  }
  return problems
}

function wrongTogether(config: Config, env: Env): string[] {
  const problems: string[] = []
  const loopback = isLoopback(config.host)
  if (!config.embedded && config.secret === undefined) {
    problems.push(
      'SECRET is required with DATABASE_URL: set it to 32 characters or more, the same in every process, e.g. from `openssl rand -base64 32`'
    )
  }
  if (config.embedded && config.roles.size < roles.length) {
    problems.push(
      'ROLE with fewer than api,worker,dispatcher needs DATABASE_URL: the embedded PostgreSQL serves one process'
    )
  }
  if (!config.auth && !loopback) {
    problems.push(
      `AUTH=off is accepted on a loopback HOST only, but HOST is ${config.host}: set AUTH=on and make a key with \`npm run key -- --create\``
    )
  }
  if (config.demo && !config.embedded && !loopback) {
    problems.push(`DEMO=on with DATABASE_URL is accepted on a loopback HOST only, but HOST is ${config.host}`)
  }
  if (config.failpoints !== undefined && env.NODE_ENV === 'production') {
    problems.push(
      'FAILPOINTS breaks this process on purpose and is refused when NODE_ENV is production: unset it'
    )
  }
  return problems
}

/** Names that are almost ours: the setting that was meant would silently keep its default. */
function misspelt(env: Env): string[] {
  const ours = Object.keys(settings.shape)
  return Object.keys(env).flatMap(name => {
    if (ours.includes(name)) return []
    // HOME is two letters from HOST, PATH from AUTH: short names must be nearer
    const meant = ours.find(
      our => env[our] === undefined && distance(name.toUpperCase(), our) <= (our.length < 6 ? 1 : 2)
    )
    return meant === undefined ? [] : [`${name} is no setting of ours: did you mean ${meant}?`]
  })
}

/** Letters to add, drop, change, or swap with their neighbour to turn one word into the other. */
function distance(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > 2) return 3
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)]
  const at = (i: number, j: number) => rows[i]?.[j] ?? Infinity
  for (let i = 1; i <= a.length; i++) {
    rows.push([i])
    for (let j = 1; j <= b.length; j++) {
      const change = at(i - 1, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1)
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      rows[i]?.push(
        Math.min(at(i - 1, j) + 1, at(i, j - 1) + 1, change, swapped ? at(i - 2, j - 2) + 1 : Infinity)
      )
    }
  }
  return at(a.length, b.length)
}
