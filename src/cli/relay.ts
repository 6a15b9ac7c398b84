// ackbox relay: moves tasks from the table ackbox_outbox of a producer's own database into Ackbox.
import { pino } from 'pino'
import { isInfrastructure } from '../db/pool.ts'
import { waitForServer } from '../db/wait-for-server.ts'
import { ddl } from '../producer/ddl.ts'
import { armFailpoints } from '../runtime/failpoint.ts'
import { logSerializers } from '../runtime/logged-error.ts'
import { messageOf } from '../runtime/errors.ts'
import type { Logger } from '../runtime/logger.ts'
import { commandLine } from '../runtime/package.ts'
import { onStop } from '../runtime/stop.ts'
import { relayMetrics } from '../relay/metrics.ts'
import { mysqlSource } from '../relay/mysql.ts'
import { postgresSource } from '../relay/postgres.ts'
import { relay, relayOnce, type RelayDeps } from '../relay/relay.ts'
import { RelayError, type Source } from '../relay/source.ts'
import { environment, readFailpoints, readLogLevel, SettingError } from '../service/config.ts'
import { isDecodable, rawPercent } from '../service/addresses.ts'
import {
  counted,
  readArguments,
  readKey,
  readTarget,
  readWhole,
  refuseSurplus,
  SlipError,
  UsageError
} from './arguments.ts'
import { codeOf } from '../runtime/text-of.ts'

export const help = `${commandLine('relay --from URL --to URL [options]')}

Reads the table ackbox_outbox of a producer's database, posts its rows to Ackbox in batches, and removes accepted rows. Rows that
Ackbox rejects move to ackbox_outbox_rejected, with the problem. Any number of relays may run in parallel.

  --from URL          postgres://… or mysql://… (or ACKBOX_RELAY_FROM: a command line can be read by other users)
  --to URL            address of Ackbox (or ACKBOX_URL)
  --key KEY           API key with the scope tasks:write (or ACKBOX_KEY, or --key-file FILE)
  --batch N           maximum rows per batch (default 500)
  --concurrency N     batches in parallel (default 2). Rows of one orderingKey keep their order
  --listen HOST:PORT  serves /healthz and /metrics there (default: neither)
  --once              relays the rows that exist now, then exits
  --retry-rejected    moves all rejected rows back into the outbox, then exits
  --print-ddl KIND    prints the tables for postgres or mysql, then exits
  --help

Exit: 0 stopped by SIGTERM or Ctrl-C after the current batches, or --once has relayed its rows · 1 an error, which is printed
      130 --once was stopped before its end`

export async function run(args: string[]): Promise<void> {
  try {
    await perform(args)
  } catch (err) {
    if (err instanceof UsageError || err instanceof SettingError) throw err
    const message = messageOf(err)
    const code = codeOf(err)
    if (err instanceof RelayError) console.error(message)
    else if (isInfrastructure(err))
      console.error(
        `ackbox relay: the database of --from cannot be used (${message || code}): check the URL, and that the server is up`
      )
    else console.error(`ackbox relay: ${message || code}`)
    process.exitCode = 1
  }
}

async function perform(args: string[]): Promise<void> {
  const options = read(args)
  if (options.ddl !== undefined) return console.log(options.ddl)
  const failpoints = readFailpoints(process.env['FAILPOINTS'], process.env)
  if (typeof failpoints === 'string') throw new UsageError(`FAILPOINTS ${failpoints}`)
  armFailpoints(failpoints)
  const source = await open(options.from, options.concurrency + 2)
  const runs = !options.once && !options.retryRejected
  const stop = new AbortController()
  if (!options.retryRejected) onStop(() => (stop.signal.aborted ? process.exit(1) : stop.abort()))
  const log = pino({ level: options.logLevel, base: null, serializers: logSerializers })
  try {
    const onWait = (wait: object): void => log.warn(wait, 'relay.waiting')
    if (runs) await waitForServer(() => source.check(), { onWait, signal: stop.signal })
    else await source.check()
    if (options.retryRejected) {
      const moved = await source.retryRejected()
      return console.log(`${counted(moved, 'rejected row is', 'rejected rows are')} in the outbox again.`)
    }
    if (!runs || !stop.signal.aborted) await work(source, options, log, stop.signal)
    if (runs) log.info({}, 'relay.stopped')
  } finally {
    await source.close()
  }
}

async function work(source: Source, options: Options, log: Logger, signal: AbortSignal): Promise<void> {
  const metrics = relayMetrics()
  const deps: RelayDeps = {
    source,
    target: { url: options.to, key: options.key, timeoutMs: 30_000 },
    log,
    batch: options.batch,
    concurrency: options.concurrency,
    onBatch: done => metrics.batch(done),
    onHealth: fault => metrics.health(fault)
  }
  if (options.once) {
    const { removed, kept } = await relayOnce(deps, signal)
    const { rows } = signal.aborted ? { rows: 0 } : await source.waiting()
    const others =
      kept > 0 || rows === 0
        ? ''
        : ` ${counted(rows, 'row is', 'rows are')} still there, held by another relay or new.`
    console.log(`${counted(removed, 'row')} left the outbox.${others}`)
    if (kept > 0) {
      console.error(
        `Ackbox answered 500 or 503 for ${counted(kept, 'row')}, which stay: see relay.kept in the log`
      )
      process.exitCode = 1
    }
    if (signal.aborted) process.exitCode = 130
    return
  }
  const { listen } = options
  const server =
    listen &&
    (await metrics
      .listen(listen.host, listen.port, () => source.waiting())
      .catch((err: unknown) => {
        throw new UsageError(`--listen ${listen.host}:${listen.port} cannot be used (${messageOf(err)})`)
      }))
  log.info({ to: options.to, batch: options.batch, concurrency: options.concurrency }, 'relay.ready')
  await relay(deps, signal)
  server?.close()
  server?.closeAllConnections()
}

async function open(from: string, connections: number): Promise<Source> {
  const scheme = URL.canParse(from) ? new URL(from).protocol : ''
  if (scheme === 'postgres:' || scheme === 'postgresql:') return postgresSource(from, connections)
  if (scheme === 'mysql:' || scheme === 'mariadb:')
    return await mysqlSource(from.replace(/^mariadb:/, 'mysql:'), connections)
  throw new SlipError(`--from must be a postgres:// or mysql:// URL`)
}

interface Options {
  from: string
  to: string
  key: string | undefined
  batch: number
  concurrency: number
  listen: { host: string; port: number } | undefined
  logLevel: string
  once: boolean
  retryRejected: boolean
  ddl: string | undefined
}

function read(args: string[]): Options {
  const env = environment()
  const { values, given } = readArguments({
    args,
    options: {
      from: { type: 'string', default: env['ACKBOX_RELAY_FROM'] ?? '' },
      to: { type: 'string' },
      key: { type: 'string' },
      'key-file': { type: 'string' },
      batch: { type: 'string', default: '500' },
      concurrency: { type: 'string', default: '2' },
      listen: { type: 'string' },
      once: { type: 'boolean', default: false },
      'retry-rejected': { type: 'boolean', default: false },
      'print-ddl': { type: 'string' }
    }
  })
  const kind = values['print-ddl']
  if (kind !== undefined && kind !== 'postgres' && kind !== 'mysql')
    throw new SlipError('--print-ddl must be postgres or mysql')
  const prints = kind !== undefined
  const of = (command: string, options: string[]): void =>
    refuseSurplus(`relay ${command}`, { words: [], options }, { words: [], given })
  if (prints) of('--print-ddl', ['print-ddl'])
  // The options of a running relay are accepted too, so that the flag can be added to its command line.
  else if (values['retry-rejected'])
    of('--retry-rejected', [
      'retry-rejected',
      'from',
      'to',
      'key',
      'key-file',
      'batch',
      'concurrency',
      'listen'
    ])
  else if (values.once) of('--once', ['once', 'from', 'to', 'key', 'key-file', 'batch', 'concurrency'])
  if (!prints && values.from === '') throw new SlipError(`Missing option: --from URL`)
  if (!isDecodable(values.from)) throw new UsageError(`--from ${rawPercent}`)
  const posts = !prints && !values['retry-rejected']
  return {
    from: values.from,
    to: posts ? readTarget(values.to, env) : '',
    key: readKey(values, env),
    batch: readWhole('--batch', values.batch, 1_000),
    concurrency: readWhole('--concurrency', values.concurrency, 64),
    listen: values.listen === undefined ? undefined : place(values.listen),
    logLevel: readLogLevel(env),
    once: values.once,
    retryRejected: values['retry-rejected'],
    ddl: kind && ddl[kind]
  }
}

function place(given: string): { host: string; port: number } {
  const [, host = '127.0.0.1', port = ''] = /^(?:(.+):)?(\d{1,5})$/.exec(given) ?? []
  if (port === '' || Number(port) > 65_535) throw new UsageError('--listen must be HOST:PORT')
  return { host: host.replace(/^\[|\]$/g, ''), port: Number(port) }
}
