// Reads the environment once and checks it: a process with a wrong setting does not start.
import { isIP, isIPv6 } from 'node:net'
import { parseEnv } from 'node:util'
import type { z } from 'zod'
import { readAlarmChannels } from './alarm-channels.ts'
import { readBrokers, wrongReceipts } from './brokers.ts'
import type { ChannelConfig } from '../alarm/channel-config.ts'
import type { DtmTargets } from '../handler/dtm.ts'
import { parseFailpoints, type Failpoint, type Fault } from '../runtime/failpoint.ts'
import { commandLine } from '../runtime/package.ts'
import { EncodingError, readTextFile } from '../runtime/text-file.ts'
import { list, misspelt, settings, type Settings } from './settings.ts'
import type { Broker } from '../transport/broker.ts'
import { isCidr, isHostPort } from '../transport/egress/allow-list.ts'
import { defined } from '../domain/optional-members.ts'
import { messageOf } from '../runtime/errors.ts'
import { codeOf } from '../runtime/text-of.ts'

export interface Config {
  databaseUrl?: string
  redisUrl?: string
  roles: Set<Role>
  host: string
  port: number
  /** PORT is set: processes without the role api then serve their health routes there. */
  portGiven: boolean
  /** The address at which downstreams reach `/callback`, without a slash at the end. */
  publicUrl: string
  handlersDir?: string
  sweepMs: number
  workerYieldAfter: number
  shutdownMs?: number
  leaseMarginMs: number
  alarmChannels: ChannelConfig[]
  retentionDays: number
  /** The folder in which removed tasks are kept. Undefined: they are not kept. */
  archiveDir?: string
  forgetMs: number
  logLevel: string
  /** None, a number of proxies, or a list of addresses. Never all: the caller could then choose its own address. */
  trustProxy: false | string | number
  redisPrefix: string
  pgPool: number
  secret?: string
  secretPrevious?: string
  auth: boolean
  keyPerSecond?: number
  actsPerSecond: number
  /** CIDRs and host:port pairs. Undefined: not set; empty: nothing beyond the public internet. */
  egressAllow: string[] | undefined
  /** Dubbo providers and message brokers, by the name that handlers use. */
  brokers: ReadonlyMap<string, Broker>
  /** The brokers from which receipts are read. */
  receiptsFrom: Broker[]
  /** DTM=on: the servers that its clients may name. Undefined: off. */
  dtmTargets?: DtmTargets
  demo: boolean
  /** Keep an API key for `npm run demo`. Own handlers need none, unless DEMO=on asks for it. */
  demoKey: boolean
  dataDir: string
  failpoints: ReadonlyMap<Failpoint, Fault>
  /** No DATABASE_URL: an embedded PostgreSQL under `dataDir`. */
  embedded: boolean
  /** Problems that do not prevent a start, one line each. */
  warnings: string[]
}

/** Wrong settings. The message names each and its fix, one line each. */
export class SettingError extends Error {
  override name = 'SettingError'
}

export const roles = ['api', 'worker', 'dispatcher'] as const
export type Role = (typeof roles)[number]
type Env = Record<string, string | undefined>

/** The environment of this process. A file `.env` in the current folder adds names that are not set. */
export function environment(): Env {
  refuseInvisible(process.env)
  let text: string
  try {
    text = readTextFile('.env')
  } catch (err) {
    if (codeOf(err) === 'ENOENT') return process.env
    throw new SettingError(
      err instanceof EncodingError ? err.message : `.env cannot be read: ${messageOf(err)}`
    )
  }
  const inFile = parseEnv(text)
  refuseInvisible(inFile)
  for (const [name, value] of Object.entries(inFile)) process.env[name] ??= value
  return process.env
}

/** A byte order mark, or a space that an editor or a chat put in: with it in its name, a setting would be missing. ASCII spaces are seen. */
const invisible = /(?! )[\p{Cf}\p{Z}]/u

function refuseInvisible(env: Env): void {
  for (const name of Object.keys(env)) {
    const code = invisible.exec(name)?.[0].codePointAt(0)?.toString(16).toUpperCase().padStart(4, '0')
    if (code !== undefined)
      throw new SettingError(
        `The name of the environment variable ${name.replaceAll(new RegExp(invisible, 'gu'), '')} contains the invisible character U+${code}: type the name again in the file that sets it, and save the file as UTF-8 without a byte order mark`
      )
  }
}

export function readConfig(env: Env): Config {
  const given = Object.fromEntries(
    // A compose file passes `NAME=` for a name that is not set. Only for EGRESS_ALLOW, empty is a value: allow nothing.
    Object.entries(env).filter(
      ([name, value]) => Object.hasOwn(settings.shape, name) && (value !== '' || name === 'EGRESS_ALLOW')
    )
  )
  const { data, complaints, wrong } = checked(given)
  const { brokers, wrong: wrongBrokers } = readBrokers(env, data.BROKERS_JSON)
  const alarms = readAlarmChannels(env, data)
  const failpoints = readFailpoints(data.FAILPOINTS, env)
  const odd = misspelt(env)
  const lists = wrongLists(data)
  if (lists.some(problem => problem.startsWith('ROLE '))) wrong.add('ROLE')
  const config = {
    ...toConfig(data, brokers, [...odd], given['PORT'] !== undefined),
    alarmChannels: alarms.channels,
    failpoints: typeof failpoints === 'string' ? new Map<Failpoint, Fault>() : failpoints
  }
  if (config.failpoints.size > 0)
    config.warnings.push(
      `FAILPOINTS is set: this process breaks at ${[...config.failpoints.keys()].join(', ')}`
    )
  const problems = [
    ...complaints,
    ...wrongBrokers,
    ...alarms.wrong,
    ...(typeof failpoints === 'string' ? [`FAILPOINTS ${failpoints}`] : []),
    ...wrongReceipts(data, brokers),
    ...lists,
    // A value that is wrong by itself is not compared with the others.
    ...wrongTogether(config, name => wrong.has(name))
  ]
  // A misspelt name may be the reason why another setting is reported as missing.
  if (problems.length > 0) throw new SettingError([...problems, ...odd].join('\n'))
  return config
}

/** Each wrong value gets a complaint and is replaced by its default, so that the other values are still checked. */
function checked(given: Env): { data: Settings; complaints: string[]; wrong: Set<string> } {
  const read = settings.safeParse(given)
  if (read.success) return { data: read.data, complaints: [], wrong: new Set() }
  const wrong = new Set(read.error.issues.map(issue => String(issue.path[0])))
  const rest = Object.fromEntries(Object.entries(given).filter(([name]) => !wrong.has(name)))
  return {
    data: settings.parse(rest),
    complaints: read.error.issues.map(issue => complaint(issue, given)),
    wrong
  }
}

/** A single setting, for a command that needs no other. The checks and the messages are those of `readConfig`. */
export const readDatabaseUrl = (env: Env): string | undefined => readOne('DATABASE_URL', env)
export const readLogLevel = (env: Env): string => readOne('LOG_LEVEL', env)

function readOne<Name extends 'DATABASE_URL' | 'LOG_LEVEL'>(name: Name, env: Env): Settings[Name] {
  const given = { [name]: env[name] || undefined }
  const read = settings.shape[name].safeParse(given[name])
  if (read.success) return read.data as Settings[Name]
  const issues = read.error.issues.map(issue => ({ ...issue, path: [name] }))
  throw new SettingError(issues.map(issue => complaint(issue, given)).join('\n'))
}

export function readFailpoints(text: string | undefined, env: Env): Map<Failpoint, Fault> | string {
  if (text === undefined || text === '') return new Map()
  if (env['NODE_ENV'] === 'production') return 'is for tests: it is refused with NODE_ENV=production'
  return parseFailpoints(text)
}

function complaint(issue: z.core.$ZodIssue, given: Env): string {
  const name = String(issue.path[0])
  const value = String(JSON.stringify(given[name]))
  // Never print a password: in a URL it stands before the @.
  const isHidden = /SECRET|URL/.test(name) || value.includes('@')
  return `${name} ${issue.message}${isHidden ? '' : `, but is ${value}`}`
}

function toConfig(
  s: Settings,
  brokers: Config['brokers'],
  warnings: string[],
  portGiven: boolean
): Omit<Config, 'failpoints' | 'alarmChannels'> {
  const embedded = s.DATABASE_URL === undefined
  const anyHost = s.HOST === '0.0.0.0' || s.HOST === '::'
  const auth = s.AUTH === undefined ? !(embedded && isLoopback(s.HOST)) : s.AUTH === 'on'
  const reachedAs = anyHost ? '127.0.0.1' : isIPv6(s.HOST) ? `[${s.HOST}]` : s.HOST
  if (anyHost && s.PUBLIC_URL === undefined) {
    warnings.push(
      'PUBLIC_URL is not set: downstreams on other machines cannot send receipts; set it to the address they reach'
    )
  }
  return {
    ...defined({
      databaseUrl: s.DATABASE_URL,
      redisUrl: s.REDIS_URL,
      handlersDir: s.HANDLERS_DIR,
      shutdownMs: s.SHUTDOWN_MS,
      archiveDir: s.ARCHIVE === 'none' ? undefined : s.ARCHIVE.slice('file:'.length),
      secret: s.SECRET,
      secretPrevious: s.SECRET_PREVIOUS,
      keyPerSecond: s.KEY_PER_SECOND,
      dtmTargets: s.DTM === 'on' ? (s.DTM_TARGETS ?? new Map<string, string>()) : undefined
    }),
    roles: new Set(list(s.ROLE) as Role[]),
    host: s.HOST,
    port: s.PORT,
    portGiven,
    publicUrl: s.PUBLIC_URL ?? `http://${reachedAs}:${s.PORT}`,
    sweepMs: s.SWEEP_MS,
    workerYieldAfter: s.WORKER_YIELD_AFTER,
    leaseMarginMs: s.LEASE_MARGIN_MS,
    retentionDays: s.RETENTION_DAYS,
    forgetMs: s.FORGET_DAYS * 86_400_000,
    logLevel: s.LOG_LEVEL,
    trustProxy: trustProxy(s.TRUST_PROXY),
    redisPrefix: s.REDIS_PREFIX,
    pgPool: s.PG_POOL,
    actsPerSecond: s.ACTS_PER_SECOND,
    auth,
    egressAllow: s.EGRESS_ALLOW === undefined ? undefined : list(s.EGRESS_ALLOW).map(withPrefixLength),
    brokers,
    receiptsFrom: list(s.RECEIPTS_FROM ?? '').flatMap(name => brokers.get(name) ?? []),
    demo: s.DEMO === undefined ? embedded : s.DEMO === 'on',
    demoKey: auth && (s.DEMO === undefined ? embedded && s.HANDLERS_DIR === undefined : s.DEMO === 'on'),
    dataDir: s.DATA_DIR,
    embedded,
    warnings
  }
}

const trustProxy = (text: string) =>
  text === 'on' ? 1 : text === 'off' || text === '0' ? false : /^\d+$/.test(text) ? Number(text) : text
const withPrefixLength = (text: string) => (isIP(text) ? `${text}/${isIPv6(text) ? 128 : 32}` : text)
const isLoopback = (host: string) =>
  host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'))

function wrongLists(s: Settings): string[] {
  const problems: string[] = []
  const names = list(s.ROLE)
  const unknown = names.filter(role => !(roles as readonly string[]).includes(role))
  if (names.length === 0 || unknown.length > 0) {
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
      `TRUST_PROXY must be off, on (one proxy), the number of proxies, or their addresses and CIDRs, but is ${JSON.stringify(s.TRUST_PROXY)}`
    )
  }
  return problems
}

/** `isWrong`: the value of this setting was refused already, and `config` holds its default. */
function wrongTogether(config: Config, isWrong: (name: keyof Settings) => boolean): string[] {
  const problems: string[] = []
  const embedded = config.embedded && !isWrong('DATABASE_URL')
  if (!embedded && config.secret === undefined && !isWrong('SECRET')) {
    problems.push(
      'SECRET is required with DATABASE_URL: set it to 32 characters or more, the same in every process, e.g. from `openssl rand -base64 32`'
    )
  }
  if (embedded && roles.some(role => !config.roles.has(role)) && !isWrong('ROLE')) {
    problems.push(
      'ROLE with fewer than api,worker,dispatcher needs DATABASE_URL: the embedded PostgreSQL serves one process'
    )
  }
  if (config.dtmTargets?.size === 0 && !isWrong('DTM_TARGETS')) {
    problems.push(
      'DTM=on needs DTM_TARGETS: the servers to which messages may go, like orders=http://10.2.0.7:8080'
    )
  }
  if (!config.auth && !isLoopback(config.host)) {
    problems.push(
      `AUTH=off is accepted on a loopback HOST only, but HOST is ${config.host}: set AUTH=on and create a key with \`${commandLine('key create NAME --scopes tasks:write')}\``
    )
  }
  if (config.demo && !config.embedded && !isLoopback(config.host)) {
    problems.push(`DEMO=on with DATABASE_URL is accepted on a loopback HOST only, but HOST is ${config.host}`)
  }
  return problems
}
