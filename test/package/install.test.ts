// npm run test:package: the tarball of `npm pack`, installed into an empty folder, works as the pages promise.
// TARBALL_TO=FOLDER keeps the tarball there if it does: a release publishes this file, and not another build.
import { spawn } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t, { type Test } from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import { stripTypes } from '../../src/handler/typescript.ts'
import { version } from '../../src/runtime/package.ts'
import { call, folder, postUntilTaken, settled } from '../support/service.ts'
import { until } from '../support/until.ts'
import { filesOf, unexpected } from './contents.ts'
import { copyTree, pack, plainEnv, root, run } from './installed.ts'
import { descendants, isAlive } from './processes.ts'

t.setTimeout(900_000)

const clone = await copyTree(t)
const tarball = await pack(t, clone)
const app = folder(t)
const hello = path.join(app, 'handlers/hello.ts')

interface Running {
  url: string
  pid: number
  /** The pids of its live descendants. */
  below(): number[]
  said(): string
  ended: Promise<void>
}

/** Starts a command in its own process group, as a shell does. */
async function start(t: Test, cwd: string, command: string, ...args: string[]): Promise<Running> {
  const port = await freePort()
  const child = spawn(command, args, {
    cwd,
    env: plainEnv({ PORT: String(port), DATA_DIR: folder(t) }),
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe']
  })
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => {
      output += chunk.toString()
    })
  const ended = new Promise<void>(done => child.once('exit', () => done()))
  const pid = child.pid ?? 0
  const below = (): number[] => descendants(pid)
  t.teardown(() => {
    for (const each of isAlive(pid) ? [pid, ...below()] : []) process.kill(each, 'SIGKILL')
  })
  await until(`${command} ${args.join(' ')} is ready`, () => {
    if (child.exitCode !== null) throw new Error(output)
    return output.includes('"msg":"ready"')
  })
  return { url: `http://127.0.0.1:${port}`, pid, below, said: () => output, ended }
}

t.test(
  'the tarball has the kinds of files it should have, and its own list of what it is made of',
  async t => {
    // `npm pack` above has already built it.
    const { code, output } = await run(
      clone,
      'npm',
      'pack',
      '--dry-run',
      '--json',
      '--ignore-scripts',
      '--silent'
    )
    t.equal(code, 0, 'npm pack --dry-run')
    const files = filesOf(output.slice(output.search(/^[[{]/m)))
    t.same(unexpected(files), [])
    t.ok(files.includes('dist/sbom.cdx.json'))
    t.match(JSON.parse(readFileSync(path.join(clone, 'dist/sbom.cdx.json'), 'utf8')), {
      bomFormat: 'CycloneDX',
      metadata: { component: { purl: `pkg:npm/ackbox@${version}` } }
    })
  }
)

t.test('it installs, and npx ackbox init makes a project of the folder', async t => {
  const installed = await run(app, 'npm', 'install', '--prefer-offline', tarball, 'postgres@3.4.9')
  t.equal(installed.code, 0, installed.output)
  const made = await run(app, 'npx', 'ackbox', 'init')
  t.equal(made.code, 0, made.output)
  for (const file of [
    'package.json',
    'handlers/hello.ts',
    'tsconfig.json',
    '.env',
    'compose.yml',
    '.gitignore'
  ])
    t.ok(existsSync(path.join(app, file)), file)
  writeFileSync(path.join(app, '.env'), 'HANDLERS_DIR=./handlers\n# mine\n')
  t.match((await run(app, 'npx', 'ackbox', 'init')).output, /\.env exists, kept/)
  t.match(readFileSync(path.join(app, '.env'), 'utf8'), '# mine', 'a second init overwrites nothing')
  t.match((await run(app, 'npx', 'ackbox', '--version')).output, version)
})

t.test('every command says how it is used, by the name that works here', async t => {
  const { output } = await run(app, 'npx', 'ackbox', '--help')
  const commands = [...output.matchAll(/^ {2}([a-z]+) {2,}/gm)].map(([, name = '']) => name)
  t.ok(commands.length >= 9, commands.join(' '))
  for (const command of commands) {
    const said = await run(app, 'node_modules/.bin/ackbox', command, '--help')
    t.equal(said.code, 0, command)
    t.match(said.output, `${command}`)
  }
  t.match((await run(app, 'node_modules/.bin/ackbox', 'key', '--help')).output, /^npx ackbox key create NAME/)
  t.match(await run(app, 'node_modules/.bin/ackbox', 'handlers'), { code: 0, output: /hello\.ts +greeter/ })
})

t.test('a handler has full types, and the compiler finds what is misspelt', async t => {
  const check = () =>
    run(app, process.execPath, path.join(root, 'node_modules/typescript/lib/tsc.js'), '-p', '.')
  const fine = await check()
  t.equal(fine.code, 0, fine.output)
  const typo = path.join(app, 'handlers/typo.ts')
  writeFileSync(typo, readFileSync(hello, 'utf8').replace('body.name}', 'body.nam}'))
  t.match(await check(), {
    code: 1,
    output: /typo\.ts.*Property 'nam' does not exist on type '\{ name: string; \}'/
  })
  rmSync(typo)
})

t.test('a producer has ackbox/producer with its types, for the postgres.js of its own', async t => {
  const shop = path.join(app, 'shop')
  mkdirSync(shop)
  const program = path.join(shop, 'pay.ts')
  const text = `import postgres from 'postgres'
import { client, ddl, enqueue, halfMessage, outbox, ProducerError } from 'ackbox/producer'
import { receiver } from 'ackbox/consumer'
const sql = postgres('postgres://127.0.0.1:1/none', { max: 1 })
const task = { messageCode: 'hello', messageBody: { name: 'world' } }
export const ways = async (): Promise<string> => {
  await sql.begin(async tx => [await outbox(tx, task), await enqueue(tx, task)])
  const { result } = await halfMessage(client({ url: 'http://127.0.0.1:1' }), sql, task, async tx => {
    await tx\`select 1\`
    return 'done'
  })
  return result
}
const points = receiver({ secrets: ['whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY='], db: sql, consumer: 'points' })
export const paid = points.fetch(async (tx, task) => tx\`select \${task.taskNo}\`)
const refused: string = await outbox(sql, task).catch((err: unknown) => (err as ProducerError).message)
console.log(refused, ddl.mysql)
await sql.end()
`
  writeFileSync(program, text)
  writeFileSync(path.join(shop, 'tsconfig.json'), '{ "extends": "../tsconfig.json", "include": ["*.ts"] }')
  const check = () =>
    run(app, process.execPath, path.join(root, 'node_modules/typescript/lib/tsc.js'), '-p', 'shop')
  const fine = await check()
  t.equal(fine.code, 0, fine.output)
  const script = path.join(shop, 'pay.mjs')
  writeFileSync(script, stripTypes(text, program))
  t.match(await run(app, process.execPath, script), {
    code: 0,
    output:
      /not a transaction: the row would be committed even if[^]*create table if not exists ackbox_outbox/
  })
  writeFileSync(program, text.replace("messageCode: 'hello'", 'messageCode: 7'))
  t.match(await check(), { code: 1, output: /pay\.ts[^]*Type 'number' is not assignable to type 'string'/ })
})

t.test('the patch of postgres.js is in it, also where the project has a postgres.js of its own', async t => {
  t.equal((await run(app, 'npm', 'dedupe', '--prefer-offline')).code, 0)
  const patched = (at: string) =>
    readFileSync(path.join(app, at, 'postgres/src/index.js'), 'utf8').includes('silence_timeout')
  t.notOk(patched('node_modules'), 'theirs is as its authors made it')
  t.ok(patched('node_modules/ackbox/node_modules'), 'ours is ours')
})

t.test('doctor names the packages that the settings need, and that nobody has installed', async t => {
  const { code, output } = await run(
    app,
    'env',
    'ALARM_CHANNEL_NIGHT=smtp://mail.internal:587/?from=ackbox@example.com&to=ops@example.com',
    'OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318',
    'BROKER_ORDERS=amqp://127.0.0.1',
    'RECEIPTS_FROM=orders',
    'npx',
    'ackbox',
    'doctor'
  )
  t.equal(code, 1)
  const [found = ''] = /^FIX +Packages .*$/m.exec(output) ?? [output]
  t.match(found, 'npm install nodemailer@')
  t.match(found, 'RECEIPTS_FROM: orders needs the package of its transport')
  t.match(found, 'npm install @opentelemetry/api@')
})

t.test('it starts, a task of the hello handler is HANDLED, and SIGTERM ends all of it', async t => {
  const service = await start(t, app, 'npx', 'ackbox', 'start')
  const task = { taskNo: 'hello-1', messageCode: 'hello', messageBody: { name: 'world' } }
  t.ok((await postUntilTaken(() => service.url, task)).status < 300)
  t.match(await settled(service.url, 'hello-1'), { body: { status: 'HANDLED' } })
  const described = await call(`${service.url}/openapi.json`)
  t.match(described.body, { info: { version } }, 'one version everywhere')
  t.match(service.said(), `Ackbox ${version}`)
  const all = service.below()
  process.kill(service.pid, 'SIGTERM')
  await service.ended
  await until('nothing is left of it', () => all.every(pid => !isAlive(pid)))
})

t.test('dev starts again when a handler changes, and tells a SyntaxError with its line', async t => {
  const dev = await start(t, app, 'npx', 'ackbox', 'dev')
  const before = readFileSync(hello, 'utf8')
  t.teardown(() => writeFileSync(hello, before))
  const starts = () => dev.said().split('"msg":"ready"').length - 1

  writeFileSync(hello, before.replace("'hello'", "'hi'"))
  await until('it is ready again', () => starts() === 2)
  const task = { taskNo: 'hi-1', messageCode: 'hi', messageBody: { name: 'world' } }
  t.ok((await postUntilTaken(() => dev.url, task)).status < 300, 'the change is in it')
  t.match(await settled(dev.url, 'hi-1'), { body: { status: 'HANDLED' } })

  writeFileSync(hello, before.replace('body: z.object', 'body: = z.object'))
  const line = before.split('\n').findIndex(text => text.includes('body: z.object')) + 1
  await until('it says where', () => dev.said().includes(`in hello.ts, line ${line}`))
  await until('it waits', () => dev.said().includes('waiting for a change'))
  writeFileSync(hello, before)
  await until('it is ready once more', () => starts() === 3)

  const settings = readFileSync(path.join(app, '.env'), 'utf8')
  t.teardown(() => writeFileSync(path.join(app, '.env'), settings))
  mkdirSync(path.join(app, 'others'))
  writeFileSync(path.join(app, 'others/hello.ts'), before.replace("'hello'", "'moved'"))
  writeFileSync(
    path.join(app, '.env'),
    `${settings.replace(/^HANDLERS_DIR=.*$/m, '')}\nHANDLERS_DIR=others\n`
  )
  await until('it is ready with the other folder', () => starts() === 4)
  const moved = { taskNo: 'moved-1', messageCode: 'moved', messageBody: { name: 'world' } }
  t.ok((await postUntilTaken(() => dev.url, moved)).status < 300)

  const all = dev.below()
  process.kill(-dev.pid, 'SIGINT')
  await dev.ended
  await until('nothing is left of it', () => all.every(pid => !isAlive(pid)))
})

t.test('npm start leaves nothing behind, whoever is told to end', async t => {
  const ends: [what: string, tell: (pid: number) => void][] = [
    ['SIGTERM to npm alone', pid => process.kill(pid, 'SIGTERM')],
    ['Ctrl-C: SIGINT to npm and all below it', pid => process.kill(-pid, 'SIGINT')],
    ['a supervisor: SIGTERM to npm and all below it', pid => process.kill(-pid, 'SIGTERM')],
    ['SIGKILL to npm', pid => process.kill(pid, 'SIGKILL')]
  ]
  for (const [what, tell] of ends) {
    // The build for the tarball is there.
    const service = await start(t, clone, 'env', 'ACKBOX_BUILT=1', 'npm', 'start')
    const all = service.below()
    t.ok(all.length > 0)
    tell(service.pid)
    await service.ended
    await until(`nothing is left after ${what}`, () => all.every(pid => !isAlive(pid)))
    t.equal(service.said().split('"msg":"stop"').length - 1, 1, `${what}: it heard of it once, and drained`)
  }
})

const { TARBALL_TO } = process.env
if (TARBALL_TO !== undefined)
  t.test('the tarball is kept', async kept => {
    kept.ok(t.passing(), 'all of the above passed')
    if (t.passing()) copyFileSync(tarball, path.join(TARBALL_TO, path.basename(tarball)))
  })
