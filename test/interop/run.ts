// npm run test:interop: every transport against its real server. The servers come from Maven and Debian's packages by
// name, once, into a cache folder; each test starts its own, on ports of its own, and ends it.
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import { basename, join } from 'node:path'
import { parseArgs } from 'node:util'
import { cache } from './server.ts'

const help = `npm run test:interop -- [name…] [options]

Runs the tests of the transports against real servers: Dubbo, Kafka, NATS, RabbitMQ, Redis, RocketMQ; the producers in Java and Go, the receivers in Java and Python, the example open-platform, and DTM's client for Python.
A name runs only the files that begin with it. Kafka, RocketMQ and Dubbo need java (17 or newer) and mvn, the producers go (1.19 or newer)
too, dtm python3 and mariadbd; the others apt-get and dpkg.
What cannot run is skipped and said; with CI=true it fails.

  --list   what there is, and what of it can run here
  --help

INTEROP_CACHE=folder   where downloads are kept (.interop)
OUTAGE_SECONDS=60      how long a broker is away in the story of an outage (3)`

const java = ['java', 'mvn']
const debian = ['apt-get', 'dpkg']
const needs: Record<string, string[]> = {
  dtm: ['python3', 'mariadbd'],
  dubbo: java,
  kafka: java,
  java: java,
  nats: debian,
  'open-platform': java,
  producers: [...java, 'go'],
  rabbitmq: debian,
  receiver: [...java, ...debian],
  redis: debian,
  rocketmq: java,
  shipped: java,
  story: [...java, ...debian],
  tls: [...java, ...debian]
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { list: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } }
})
if (values.help) {
  console.log(help)
  process.exit(0)
}

const folder = import.meta.dirname
const files = readdirSync(folder)
  .filter(name => name.endsWith('.test.js'))
  // The compiled file of a source that is gone stays.
  .filter(name => existsSync(join(folder, '../../../test/interop', name.replace(/js$/, 'ts'))))
  .filter(name => positionals.length === 0 || positionals.some(each => name.startsWith(each)))
const has = (program: string) => spawnSync('sh', ['-c', `command -v ${program}`]).status === 0
const rows = files.map(name => {
  const server = Object.keys(needs).find(each => name.replace('reply-', '').startsWith(each))
  const missing = (needs[server ?? ''] ?? []).filter(program => !has(program))
  return { name, missing }
})
if (rows.length === 0) {
  console.error(`no test begins with ${positionals.join(', ')}; see npm run test:interop -- --list`)
  process.exit(2)
}
const strict = process.env['CI'] === 'true'
for (const { name, missing } of rows) {
  const what = basename(name, '.test.js').padEnd(16)
  if (missing.length > 0)
    console.error(`${what} ${strict ? 'CANNOT RUN' : 'skipped'}: no ${missing.join(', no ')} here`)
  else if (values.list) console.error(`${what} can run`)
}
if (values.list) process.exit(0)
const runnable = rows.filter(row => row.missing.length === 0)
if (runnable.length === 0 || (strict && runnable.length < rows.length)) process.exit(1)

console.error(`${runnable.length} files; servers are fetched into ${cache} when they are not there yet`)
// Two files at a time, since they wait for their servers most of the time.
const tests = spawn(
  process.execPath,
  [
    join(folder, '../support/run.js'),
    '--jobs',
    '2',
    ...runnable.map(row => `test/interop/${row.name.replace(/js$/, 'ts')}`)
  ],
  { stdio: 'inherit', env: { ...process.env, INTEROP_RUN: String(process.pid) } }
)
// Ctrl-C reaches it by the terminal too; it ends the servers, and we end with it.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => void tests.kill(signal))
tests.on('exit', (code, signal) => {
  process.exitCode = code ?? (signal ? 130 : 1)
})
