// ackbox start: the process, from its settings to its end.

import { createServer, type AddressInfo } from 'node:net'
import { resolve } from 'node:path'
import closeWithGrace from 'close-with-grace'
import { pino } from 'pino'
import { environment, readConfig, SettingError, type Config } from './service/config.ts'
import { remind } from './cli/doctor/remind.ts'
import { explain } from './cli/explain.ts'
import { readHandlers } from './cli/read-handlers.ts'
import { demoHeader, dropDemoKey, keepDemoKey, type DemoKey } from './demo/key.ts'
import { startReceiver, type DemoReceiver } from './demo/receiver.ts'
import { embeddedSecret, startEmbedded, type Embedded } from './embedded/start.ts'
import { migrate, pendingMigrations, unknownMigrations } from './db/migrate.ts'
import { checkDatabase, DatabaseError } from './db/pool.ts'
import { waitForServer } from './db/wait-for-server.ts'
import { armFailpoints } from './runtime/failpoint.ts'
import { signingSecret } from './domain/tokens.ts'
import { logSerializers } from './runtime/logged-error.ts'
import type { Logger } from './runtime/logger.ts'
import { commandLine, version } from './runtime/package.ts'
import { onStop } from './runtime/stop.ts'
import { buildService, type Service } from './service/build.ts'
import { setupFacts } from './service/presence.ts'
import { messageOf } from './runtime/errors.ts'
import { codeOf } from './runtime/text-of.ts'
import { builtInHandlers } from './handler/files.ts'
import type { LoadedHandler } from './handler/loaded.ts'
import { logRejections } from './handler/log-rejections.ts'
import { stopInOrder } from './service/stop-in-order.ts'

/** A stop that takes this much longer than its limit hangs. */
const graceMs = 20_000
/** A processor fault repeats after each return of its handler: a process that listens for it would loop for ever. */
const faults = ['SIGSEGV', 'SIGBUS', 'SIGILL', 'SIGFPE', 'SIGTRAP', 'SIGABRT'] as const

interface Running {
  log?: Logger
  handlers?: ReadonlyMap<string, LoadedHandler>
  service?: Service
  receiver?: DemoReceiver
  /** From the moment at which it starts: a stop waits for it. */
  embedded?: Promise<Embedded>
  isStopping: boolean
  /** Ends a start of the embedded PostgreSQL, or the wait for another one. */
  starting: AbortController
}
const running: Running = { isStopping: false, starting: new AbortController() }

await main().catch(fail)

async function main(): Promise<void> {
  const config = await withPort(readConfig(environment()))
  const log = await openLog(config)
  running.log = log
  for (const warning of config.warnings) log.warn({ warning }, 'settings.warn')
  armFailpoints(config.failpoints)
  const grace = closeWithGrace(
    { delay: false, logger: false, skip: ['SIGINT', 'SIGTERM', 'unhandledRejection', ...faults] },
    async ({ signal, err }) => {
      if (err) log.error({ err }, 'crash')
      if (signal) log.info({ signal }, 'stop')
      running.isStopping = true
      // The timer keeps the process alive: a stop that hangs must not look like a clean end.
      setTimeout(() => process.exit(1), (running.service?.stopMs ?? 0) + graceMs)
      await stop()
    }
  )
  onStop(why => {
    if (running.isStopping) process.exit(1)
    log.info(why, 'stop')
    grace.close()
  })
  const databaseUrl = await openDatabase(config, log)
  if (databaseUrl === undefined) return
  const secret = config.secret ?? embeddedSecret(config.dataDir)
  if (config.demo) {
    running.receiver = await startReceiver({
      secretOf: name => signingSecret(secret, name),
      callbackOrigin: `http://${loopbackOf(config.host)}:${config.port}`
    })
  }
  const { receiver } = running
  logRejections({
    log,
    folder: resolve(config.handlersDir ?? builtInHandlers),
    handlers: () => running.handlers,
    count: messageCode => running.service?.metrics.hookRejected(messageCode)
  })
  const registry = await readHandlers(config, receiver?.url, member =>
    log.warn(member, 'hook.undefined_member')
  )
  running.handlers = registry.handlers
  const demoKey = config.demoKey ? await keepDemoKey(databaseUrl, config.dataDir) : undefined
  // Without AUTH no key counts, and the next start with AUTH decides.
  const mayDrop = config.auth && !config.demoKey
  const leftover = mayDrop || !config.demo ? await dropDemoKey(databaseUrl, config.dataDir) : undefined
  if (leftover !== undefined) log.warn({ warning: leftover }, 'settings.warn')
  if (running.isStopping) return
  running.service = await buildService({
    config,
    databaseUrl,
    secret,
    registry,
    version,
    log,
    ...(receiver ? { demoTarget: new URL(receiver.url).host } : {})
  })
  const address = await running.service.listen()
  if (address !== undefined && config.roles.has('api'))
    greet(address.replace('0.0.0.0', '127.0.0.1'), config, demoKey, registry.handlers.has('order.paid'))
  log.info(
    {
      version,
      roles: [...config.roles],
      queue: config.redisUrl === undefined ? 'postgres' : 'redis',
      handlers: [...registry.handlers.keys()],
      downstreams: [...registry.downstreams.keys()]
    },
    'ready'
  )
  // Not awaited: the reminder only warns.
  const { handlers, downstreams } = registry
  const named = registry.targets.filter(({ url }) => url !== receiver?.url)
  void remind(
    config,
    databaseUrl,
    {
      codes: handlers.size,
      downstreams: downstreams.size,
      // The start has opened all of them.
      missing: [],
      named,
      facts: setupFacts(config, secret, registry)
    },
    log,
    () => running.isStopping
  )
}

/** The URL of a usable database. The embedded one is migrated here, any other by `ackbox migrate`. Undefined: this process is stopping. */
async function openDatabase(config: Config, log: pino.Logger): Promise<string | undefined> {
  if (config.databaseUrl === undefined) {
    running.embedded = startEmbedded({ dataDir: config.dataDir, log, signal: running.starting.signal })
    const { url, lost } = await running.embedded
    void lost.then(endWithoutDatabase)
    if (running.isStopping) return undefined
    await migrate(url, log)
    return url
  }
  const { databaseUrl } = config
  const checked = await waitForServer(() => checkDatabase(databaseUrl).then(() => true), {
    signal: running.starting.signal,
    onWait: wait => log.warn(wait, 'database.unavailable'),
    onUp: ms => log.info({ ms }, 'database.available')
  })
  if (checked === undefined) return undefined
  const missing = await pendingMigrations(config.databaseUrl)
  if (missing.length > 0) {
    throw new DatabaseError(
      `The database lacks ${missing.join(', ')}: run \`${commandLine('migrate')}\` with this DATABASE_URL.`
    )
  }
  const newer = await unknownMigrations(config.databaseUrl)
  if (newer > 0) log.info({ version, newer }, 'schema.newer')
  return config.databaseUrl
}

async function stop(): Promise<void> {
  running.starting.abort()
  await stopInOrder(running.log ?? { error: () => {} }, [
    ['service', () => running.service?.stop()],
    ['receiver', () => running.receiver?.close()],
    ['embedded', async () => (await running.embedded?.catch(() => undefined))?.stop()]
  ])
}

/** PORT=0 becomes a real port first: handlers, receipts and the egress guard need it. */
async function withPort(config: Config): Promise<Config> {
  if (!config.roles.has('api') && !config.portGiven) return config
  const server = createServer()
  await new Promise<void>((listening, reject) => {
    server.once('error', reject)
    server.listen(config.port, config.host, listening)
  }).catch((err: unknown) => {
    throw listenError(err, config)
  })
  const { port } = server.address() as AddressInfo
  await new Promise(resolve => server.close(resolve))
  return { ...config, port, publicUrl: config.publicUrl.replace(/:0$/, `:${port}`) }
}

/** Other errors contain the address: cli/explain. An unknown HOST would be taken for the host of the database. */
function listenError(err: unknown, { host }: Config): unknown {
  return /^(ENOTFOUND|EAI_)/.test(codeOf(err) ?? '')
    ? new SettingError(
        `HOST ${host} cannot be resolved (${messageOf(err)}): set it to an address of this machine`
      )
    : err
}

function loopbackOf(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1'
  return host.includes(':') ? '[::1]' : host
}

/** JSON in a pipe, short lines on a terminal. */
async function openLog({ logLevel }: Config): Promise<pino.Logger & Logger> {
  const options = { level: logLevel, base: null, serializers: logSerializers }
  if (!process.stdout.isTTY) return pino(options)
  // A terminal that was closed fails each write. That must not keep the stop from ending.
  process.stdout.on('error', () => {})
  const { openTerminal } = await import('./runtime/terminal.ts')
  const terminal = openTerminal(text => process.stdout.write(text), process.stdout.hasColors())
  const log = pino(options, terminal)
  // At debug these deliveries have an event anyway. Above info they are not logged.
  return logLevel === 'info' ? Object.assign(log, { ended: terminal.ended }) : log
}

/** On stderr, unless stdout is a terminal: in a pipe stdout has lines of JSON only. */
function greet(url: string, config: Config, demoKey: DemoKey | undefined, samples: boolean): void {
  const taskNo = `hello-${Date.now().toString(36)}`
  const body = JSON.stringify({
    taskNo,
    messageCode: 'order.paid',
    messageBody: { orderId: '1001', cents: 4200 }
  })
  const print = process.stdout.isTTY ? console.log : console.error
  const isShown = process.stdout.isTTY || process.stderr.isTTY
  const key = demoKey === undefined ? '' : ` ${demoHeader(demoKey, isShown)}`
  const lines = [
    '',
    `  Ackbox ${version}`,
    '',
    `  Dashboard   ${url}/`,
    `  API         ${url}/tasks`,
    `  Swagger UI  ${url}/docs`,
    `  Health      ${url}/healthz   ${url}/readyz   ${url}/metrics`,
    ...(config.embedded
      ? [`  Data        ${config.dataDir} (embedded PostgreSQL; set DATABASE_URL to use your own)`]
      : []),
    ...(config.auth ? [] : ['  Keys        not needed (AUTH is off: this machine only)']),
    ...(config.demo && samples
      ? [
          `  Demo        ${demoLine(url)} (its receiver: ${running.receiver?.url ?? ''})`,
          '',
          '  Paste this to post a first task and wait for its receipt:',
          '',
          `    curl -sSw '\\n'${key} -H 'content-type: application/json' -d '${body}' ${url}/tasks --next -sSw '\\n'${key} '${url}/tasks/${taskNo}?wait=HANDLED'`
        ]
      : []),
    ''
  ]
  print(lines.join('\n'))
}

/** The demo reads PORT from its own shell, which may not have it. */
function demoLine(url: string): string {
  return commandLine(url === 'http://127.0.0.1:3000' ? 'demo' : `demo --url ${url}`)
}

/** Nothing would start the embedded PostgreSQL again: this process ends, and its next start recovers the data. */
async function endWithoutDatabase(): Promise<void> {
  if (running.isStopping) return
  running.isStopping = true
  console.error(
    'ackbox: something else has ended the embedded PostgreSQL, perhaps the kernel for want of memory. ' +
      'No committed task is lost: start Ackbox again'
  )
  setTimeout(() => process.exit(1), (running.service?.stopMs ?? 0) + graceMs)
  await stop().catch(() => {})
  process.exit(1)
}

/** Prints one line with the remedy. A stack trace only for a bug of Ackbox. */
async function fail(err: unknown): Promise<void> {
  // The stop has taken the database from under the start.
  if (running.isStopping) return
  await stop().catch(() => {})
  console.error(explain(err))
  process.exit(1)
}
