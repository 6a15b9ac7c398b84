// Every setting of Ackbox, in one object. `.env.example` and `docs/config.md` are printed from it.
import { z } from 'zod'

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

/** `unset` says what happens without the setting, where that is more than a value. */
export const settings = z.object({
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
  PORT: whole(0, 65535)
    .default(3000)
    .describe(
      'The port to listen on; 0 takes any free one. Without the role api only when it is said, for /healthz, /readyz and /metrics.'
    ),
  PUBLIC_URL: address('http:', 'https:')
    .optional()
    .describe('Where downstreams reach this service; `/callback` is appended.')
    .meta({ unset: '`http://HOST:PORT`', example: 'https://ackbox.example.com' }),
  AUTH: oneOf(['on', 'off'])
    .optional()
    .describe('Whether requests need an API key. `off` is accepted on a loopback `HOST` only.')
    .meta({ unset: 'off without `DATABASE_URL` on a loopback `HOST`, else on' }),
  KEY_PER_SECOND: whole(1, 1_000_000)
    .optional()
    .describe('Requests a second that one API key may make of each process; beyond it they are answered 429.')
    .meta({ unset: 'no limit' }),
  EGRESS_ALLOW: z
    .string()
    .optional()
    .describe(
      'What downstreams may have beside public addresses: CIDRs; host:port, the only form for loopback and metadata.'
    )
    .meta({
      unset: 'loopback and private ranges without `DATABASE_URL`, else none; empty: none',
      example: '10.2.0.0/16,warehouse.internal:8080'
    }),
  BROKERS_JSON: z
    .string()
    .optional()
    .describe(
      'Where Dubbo providers and message brokers are, as JSON: name → URL. One broker alone: `BROKER_<NAME>`, its URL.'
    )
    .meta({
      unset: 'only those of `BROKER_<NAME>`',
      example: '{"kafka":"kafka://10.2.0.5:9092","orders":"amqp://user:password@rabbit:5672"}'
    }),
  RECEIPTS_FROM: z
    .string()
    .optional()
    .describe(
      'Brokers, by name and separated by commas, whose `ackbox.receipts` is read: consumers of RabbitMQ, Kafka and NATS need no HTTP to send receipts.'
    )
    .meta({ unset: 'receipts come to /callback only', example: 'kafka,orders' }),
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
      'For tests of faults: moments at which this process kills, stops, delays or breaks itself, `name=kill|stop|throw|sleep:ms`, with `#n` for the n-th hit or `%p` for a chance. Refused with `NODE_ENV=production`.'
    )
    .meta({ unset: 'never', example: 'accept.before_commit=kill#3,hint.before=sleep:500%10' })
})
export type Settings = z.output<typeof settings>

/** Names that are almost ours: the setting that was meant would silently keep its default. */
export function misspelt(env: Record<string, string | undefined>): string[] {
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

interface Described {
  name: string
  sentence: string
  fallback: string | undefined
  unset: string | undefined
  example: string | undefined
}

function described(): Described[] {
  return Object.entries(settings.shape).map(([name, schema]) => {
    const { description = '', unset, example } = schema.meta() ?? {}
    const fallback = schema instanceof z.ZodDefault ? String(schema.def.defaultValue) : undefined
    return { name, sentence: description, fallback, unset: text(unset), example: text(example) }
  })
}
const text = (value: unknown) => (typeof value === 'string' ? value : undefined)

export function printEnvExample(): string {
  const parts = described().map(({ name, sentence, fallback, unset, example }) => {
    const note = unset === undefined ? '' : `\n# Unset: ${unset}.`
    return `# ${sentence}${note}\n#${name}=${fallback ?? example ?? ''}\n`
  })
  return `# Printed by \`npm run generate\` from src/settings.ts. Copy to .env and change what you need.\n\n${parts.join('\n')}`
}

export function printConfigDoc(): string {
  const rows = described().map(({ name, sentence, fallback, unset }) => {
    const otherwise = fallback === undefined ? (unset ?? 'not used') : `\`${fallback}\``
    return `| \`${name}\` | ${cell(otherwise)} | ${cell(sentence)} |`
  })
  return [
    '# Settings',
    '',
    'Printed by `npm run generate` from `src/settings.ts`: change it there. All settings are environment variables; each',
    'is checked at start, and everything wrong is said at once, by name. An empty value counts as unset, but for',
    '`EGRESS_ALLOW`, where empty means: nothing. A name one or two letters from ours is warned about.',
    '',
    '| name | unset | what it does |',
    '|---|---|---|',
    ...rows,
    ''
  ].join('\n')
}
const cell = (markdown: string) => markdown.replaceAll('|', '\\|')
