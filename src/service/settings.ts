// Every setting of Ackbox, in one object. `.env.example` and `docs/config.md` are generated from it.
import { z } from 'zod'
import { redisAddress } from '../queue/redis-address.ts'
import { readTargets } from '../handler/dtm.ts'
import { secretBytes } from '../domain/tokens.ts'
import { nearest } from '../runtime/nearest.ts'
import { address, addresses, base, decodable } from './addresses.ts'
import { isServiceLink } from './service-links.ts'

const whole = (min: number, max: number) => {
  const error = `must be a whole number from ${min} to ${max}`
  const text = z.string().regex(/^\d{1,9}$/, error)
  return text.transform(Number).pipe(z.number().min(min, error).max(max, error))
}
const oneOf = <const T extends readonly string[]>(words: T) =>
  z.enum(words, `must be one of ${words.join(', ')}`)
const folder = z.string().regex(/^(none|file:\/[^/].*)$/, 'must be none, or like file:/folder')

/** `unset` describes the behaviour without the setting, if it is more than a value. */
export const settings = z.object({
  DATABASE_URL: addresses('postgres:', 'postgresql:')
    .optional()
    .describe(
      'The PostgreSQL that holds all tasks. Version 14 or newer. With several hosts (`postgres://user:password@a:5432,b:5432/ackbox`), the one that takes writes is used, and another one after a failover.'
    )
    .meta({
      unset: 'a PostgreSQL of its own under `DATA_DIR`',
      example: 'postgres://ackbox:password@127.0.0.1:5432/ackbox'
    }),
  REDIS_URL: decodable
    .refine(text => redisAddress(text) !== undefined, {
      error:
        'must be like redis://host:6379, rediss://host:6379, redis://a:6379,b:6379 or redis+sentinel://a:26379,b:26379/master'
    })
    .optional()
    .describe(
      'The Redis for BullMQ. Version 6.2 or newer. It holds jobs only: losing it costs time, never a task. Several hosts are a Redis Cluster (`redis://a:6379,b:6379`); `redis+sentinel://a:26379,b:26379/master` asks Sentinels for the master.'
    )
    .meta({ unset: 'BullMQ uses the same PostgreSQL', example: 'redis://127.0.0.1:6379' }),
  SECRET: z
    .string()
    .min(32, 'is too short: 32 characters or more, e.g. from `openssl rand -base64 32`')
    .optional()
    .describe(
      'The master key. Callback tokens and signing secrets are derived from it. All processes need the same value.'
    )
    .meta({ unset: 'generated and kept in `DATA_DIR`; required with `DATABASE_URL`' }),
  SECRET_PREVIOUS: z
    .string()
    .min(32, 'is too short: it is the other SECRET of a rotation, 32 characters or more')
    .optional()
    .describe(
      'The other `SECRET` during a rotation: first the next one, then the previous one. Its tokens are accepted too, and its signatures sent too.'
    ),
  ROLE: z
    .string()
    .default('api,worker,dispatcher')
    .describe('The roles of this process, separated by commas. A subset requires `DATABASE_URL`.'),
  HOST: z
    .string()
    .default('127.0.0.1')
    .describe('The address to listen on. With `0.0.0.0` or `::` (all addresses), requests need an API key.'),
  PORT: whole(0, 65535)
    .default(3000)
    .describe(
      'The port to listen on. 0 selects a free port. Without the api role, the port opens only if PORT is set, for /healthz, /readyz and /metrics.'
    ),
  PUBLIC_URL: base('http:', 'https:')
    .optional()
    .describe('The URL at which downstreams reach this service. `/callback` is appended.')
    .meta({ unset: '`http://HOST:PORT`', example: 'https://ackbox.example.com' }),
  AUTH: oneOf(['on', 'off'])
    .optional()
    .describe('Whether requests need an API key. `off` requires a loopback `HOST`.')
    .meta({ unset: 'off without `DATABASE_URL` on a loopback `HOST`, else on' }),
  KEY_PER_SECOND: whole(1, 1_000_000)
    .optional()
    .describe(
      'The number of requests per second that one API key, with the keys that it created, may send to each process. Further requests get 429.'
    )
    .meta({ unset: 'no limit' }),
  ACTS_PER_SECOND: whole(1, 1_000_000)
    .default(10)
    .describe(
      'The number of acts per second of one API key, with the keys that it created, in each process. An act is a request that writes the audit, such as a redelivery. A delete of a task by a key that may post is none. Ten times as many are accepted at once. Further acts get 429.'
    ),
  EGRESS_ALLOW: z
    .string()
    .optional()
    .describe(
      'Private destinations that deliveries may reach: CIDRs, or host:port. Loopback and metadata addresses and internal names (orders, x.internal) need host:port.'
    )
    .meta({
      unset: 'loopback and private ranges without `DATABASE_URL`, else none; empty: none',
      example: '10.2.0.0/16,warehouse.internal:8080'
    }),
  BROKERS_JSON: z
    .string()
    .optional()
    .describe(
      'The URLs of Dubbo providers and message brokers, as a JSON object of name to URL. `BROKER_<NAME>` sets a single one.'
    )
    .meta({
      unset: 'only those of `BROKER_<NAME>`',
      example: '{"kafka":"kafka://10.2.0.5:9092","orders":"amqp://user:password@rabbit:5672"}'
    }),
  RECEIPTS_FROM: z
    .string()
    .optional()
    .describe(
      'Names of brokers, separated by commas, from whose `ackbox.receipts` (`ackbox-receipts` of RocketMQ) receipts are read. Consumers can then send receipts without HTTP.'
    )
    .meta({ unset: 'receipts come to /callback only', example: 'kafka,orders' }),
  HANDLERS_DIR: z
    .string()
    .optional()
    .describe('A folder of handlers: `.ts`, `.mts`, `.js` or `.mjs`.')
    .meta({ unset: 'the handlers that come with the project', example: './handlers' }),
  DTM: oneOf(['on', 'off'])
    .default('off')
    .describe(
      'Whether two-phase messages of DTM clients are accepted at `/api/dtmsvr`. `on` requires `DTM_TARGETS`.'
    ),
  DTM_TARGETS: z
    .string()
    .transform((text, context) => {
      const targets = readTargets(text)
      if (typeof targets !== 'string') return targets
      context.addIssue(targets)
      return z.NEVER
    })
    .optional()
    .describe(
      'The servers that DTM clients may name in steps and in `query_prepared`: name=origin, separated by commas. Each name is a downstream.'
    )
    .meta({ unset: 'none', example: 'orders=http://10.2.0.7:8080,stock=https://stock.example.com' }),
  LEASE_MARGIN_MS: whole(1_500, 600_000)
    .default(10_000)
    .describe('The length of a lease, in ms, beyond the timeout of its downstream.'),
  SWEEP_MS: whole(10, 60_000)
    .default(1_000)
    .describe('The longest interval between two sweeps for due deliveries, in ms.'),
  WORKER_YIELD_AFTER: whole(0, 10_000)
    .default(5)
    .describe(
      'After this many consecutive failures to reach a downstream (no route, DNS, TLS, connection refused), a worker leaves it to the others for 60 s if they reach it. 0: never.'
    ),
  SHUTDOWN_MS: whole(0, 3_600_000)
    .optional()
    .describe('How long a stopping process may finish its work, in ms.')
    .meta({ unset: 'the longest timeout of a downstream + 5000' }),
  RETENTION_DAYS: whole(1, 36_500)
    .default(30)
    .describe(
      'The number of days after which an ended task is removed, counted from its POST or its end, whichever is later.'
    ),
  ARCHIVE: folder
    .default('none')
    .describe(
      'Where tasks are kept that retention removes: `file:/var/lib/ackbox/archive` for a folder, with deliveries, attempts and receipts, as NDJSON in gzip.'
    ),
  FORGET_DAYS: whole(1, 3_650)
    .default(30)
    .describe(
      'The number of days, counted from the start of its round, after which a delivery is not sent again. Receivers may forget it then.'
    ),
  ALARM_CHANNELS: z
    .string()
    .optional()
    .describe(
      'The channels that get alarms, as a JSON object of name to URL or to `{"url":…,"secret":…,"kinds":[…],"downstreams":[…],"messageCodes":[…]}`. `ALARM_CHANNEL_<NAME>` sets a single one by its URL.'
    )
    .meta({
      unset: 'only those of `ALARM_CHANNEL_<NAME>` and `ALARM_WEBHOOK_URL`',
      example: '{"ops":"https://hooks.slack.com/services/T0/B0/KEY"}'
    }),
  ALARM_WEBHOOK_URL: address('http:', 'https:')
    .optional()
    .describe('The URL to which alarms are POSTed, signed like deliveries.')
    .meta({
      unset: 'alarms are in the log and in `GET /alarms`',
      example: 'https://alerts.example.com/ackbox'
    }),
  ALARM_WEBHOOK_SECRET: z
    .string()
    .refine(secret => secretBytes(secret) >= 24, 'must be whsec_ and base64 of 24 bytes or more')
    .optional()
    .describe('The secret that signs alarms, `whsec_…`.')
    .meta({ unset: 'derived from `SECRET`' }),
  OTEL_EXPORTER_OTLP_ENDPOINT: address('http:', 'https:')
    .optional()
    .describe(
      'The collector of OpenTelemetry to which traces are sent, by OTLP over HTTP. The other variables `OTEL_…` of its SDK work too. Needs packages: see docs/observability.md.'
    )
    .meta({ unset: 'no traces', example: 'http://127.0.0.1:4318' }),
  LOG_LEVEL: oneOf(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'])
    .default('info')
    .describe('The lowest level that is logged.'),
  TRUST_PROXY: z
    .string()
    .default('off')
    .describe(
      'The proxies whose `X-Forwarded-For` is trusted: `off`, their number, their addresses and CIDRs, or `on`, which is one proxy.'
    ),
  PG_POOL: whole(2, 500)
    .default(10)
    .describe(
      'The number of connections to PostgreSQL of this process. With the role `api` or `dispatcher` it opens up to 4 more, for lists, reads and counts; BullMQ has its own.'
    ),
  REDIS_PREFIX: z
    .string()
    .regex(/^[A-Za-z0-9_{}-]{1,32}$/, 'must be 1 to 32 letters, digits, _ - { }')
    .default('ackbox')
    .describe('The prefix of all keys in Redis. Two services with different prefixes can share one Redis.'),
  DEMO: oneOf(['on', 'off'])
    .optional()
    .describe(
      'Whether to run the demo receiver and keep an API key for `npm run demo`. With `HANDLERS_DIR`, the key is kept only with `on`. With `DATABASE_URL`, `on` requires a loopback `HOST`.'
    )
    .meta({ unset: 'on without `DATABASE_URL`, else off' }),
  DATA_DIR: z
    .string()
    .default('.ackbox')
    .describe('The folder of the embedded PostgreSQL and of the generated secret.'),
  FAILPOINTS: z
    .string()
    .optional()
    .describe(
      'For tests of faults: moments at which this process kills, stops, delays or breaks itself, `name=kill|stop|throw|sleep:ms`, with `#n` for the n-th hit or `%p` for a chance. Refused with `NODE_ENV=production`.'
    )
    .meta({ unset: 'never', example: 'accept.before_commit=kill#3,queue.before_add=sleep:500%10' })
})
export type Settings = z.output<typeof settings>

/** Warnings for names that nearly match a setting, which would silently keep its default. Each ALARM_CHANNEL_ names a channel. */
export function misspelt(env: Record<string, string | undefined>): string[] {
  const ours = Object.keys(settings.shape)
  return Object.entries(env).flatMap(([name, value = '']) => {
    if (ours.includes(name) || name.startsWith('ALARM_CHANNEL_') || isServiceLink(name, value)) return []
    const unset = ours.filter(our => env[our] === undefined)
    // HOME is two letters from HOST, and PATH from AUTH: short names must be closer.
    const meant = nearest(name, unset, our => (our.length < 6 ? 1 : 2))
    return meant === undefined ? [] : [`Unknown setting ${name}. Did you mean ${meant}?`]
  })
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
  return `# Generated by \`npm run generate\` from src/service/settings.ts. Copy it to .env and change what you need.\n\n${parts.join('\n')}`
}

export function printConfigDoc(): string {
  const rows = described().map(({ name, sentence, fallback, unset }) => {
    const otherwise = fallback === undefined ? (unset ?? 'not used') : `\`${fallback}\``
    return `| ${[`\`${name}\``, otherwise, sentence].map(cell => cell.replaceAll('|', '\\|')).join(' | ')} |`
  })
  return [
    '# Settings',
    '',
    'Generated by `npm run generate` from `src/service/settings.ts`: change it there. All settings are environment variables, or',
    'lines of a file `.env`. A start checks them and reports all errors at once. An empty value counts as unset, except for',
    '`EGRESS_ALLOW`: there it allows nothing. A name that differs from a setting by one or two letters (short names: by one) causes a warning.',
    'The file is UTF-8, with or without a byte order mark. One in UTF-16 is an error.',
    '',
    '| name | unset | what it does |',
    '|---|---|---|',
    ...rows,
    ''
  ].join('\n')
}

/** The parts of a list with commas. */
export const list = (text: string) =>
  text
    .split(',')
    .map(part => part.trim())
    .filter(part => part !== '')
