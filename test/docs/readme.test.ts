// The pages are correct: their commands run, their links resolve, their settings exist, and their code compiles.
// Takes long: npm run test:long.
import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { problems } from '../../src/runtime/errors.ts'
import { freePort } from '../../src/embedded/port.ts'
import { settings } from '../../src/service/settings.ts'
import * as words from '../../src/domain/types.ts'
import { signingSecret, tokens } from '../../src/domain/tokens.ts'
import { program, without } from '../support/program.ts'
import { dataFolder } from '../support/cluster.ts'
import { folder, secret, start } from '../support/service.ts'
import { until } from '../support/until.ts'
import { commands, page, type Page } from './markdown.ts'

const root = path.resolve(import.meta.dirname, '../../..')
const inDist = (file: string): string => path.join(root, 'dist', file)
const docs = readdirSync(path.join(root, 'docs'), { recursive: true, encoding: 'utf8' }).map(
  name => `docs/${name}`
)
const pages = ['README.md', 'README.zh-CN.md', 'CONTRIBUTING.md', 'SECURITY.md', 'CHANGELOG.md', ...docs]
  .filter(file => file.endsWith('.md'))
  .map(file => page(root, file))
const pageOf = (file: string): Page => pages.find(one => one.file === file) as Page
const { scripts } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as {
  scripts: Record<string, string>
}
const compose = readFileSync(path.join(root, 'docker-compose.yml'), 'utf8')

interface Said {
  code: number
  output: string
}

/** Runs a command until it exits. */
async function run(command: string, args: string[], env: Record<string, string>): Promise<Said> {
  const whole = { PATH: process.env['PATH'], HOME: process.env['HOME'], ...env }
  return promisify(execFile)(command, args, { cwd: root, env: whole, timeout: 300_000 }).then(
    ({ stdout, stderr }) => ({ code: 0, output: stdout + stderr }),
    (err: { code?: number; stdout?: string; stderr?: string; message: string }) => ({
      code: err.code ?? -1,
      output: `${err.message}\n${err.stdout ?? ''}${err.stderr ?? ''}`
    })
  )
}

/** The npm scripts that this test runs. The others (`npm test`, `npm run check` …) would run this test again. */
const quick = new Set(['handlers', 'key', 'doctor', 'bench', 'demo', 'migrate'])
/** The default of a thousand tasks is a show for people. */
const shorter: Record<string, string[]> = { demo: ['--tasks', '6'] }

interface Around {
  env: Record<string, string>
  /** Address in the text → address here. */
  places: Record<string, string>
}

/** Runs one command of a page, or checks only that its parts exist. */
async function obey(t: Test, command: string, { env, places }: Around): Promise<void> {
  const [, npm, verb = '', rest = ''] =
    /^(?:[A-Z_]+=\S+ )*(npm) (?:run )?([a-z]+)(?: -- (.*))?$/.exec(command) ?? []
  if (npm && verb === 'ci') return
  if (npm) {
    const script = scripts[verb]
    if (!t.ok(script, `npm knows ${verb}`) || !quick.has(verb)) return
    // What the script runs after the build.
    const line = script?.replace('exec node build-and-run.mjs', 'dist/src/cli/ackbox.js') ?? ''
    const file = /(dist\/\S+(?: \w+)?)$/.exec(line)?.[1] ?? ''
    const more = (shorter[verb] ?? []).join(' ')
    const said = await run('bash', ['-c', `${process.execPath} ${file} ${rest} ${more}`], env)
    t.equal(said.code, 0, `${command} works\n${said.code === 0 ? '' : said.output}`)
    return
  }
  if (command.startsWith('docker compose ')) {
    const services = [...command.matchAll(/exec (\w+)|(\w+)=\d/g)].map(([, exec, scale]) => exec ?? scale)
    for (const service of services) t.match(compose, new RegExp(`^  ${service}:$`, 'm'), `has ${service}`)
    const [file] = /dist\S+/.exec(command) ?? []
    if (file) t.ok(existsSync(path.join(root, file)), `${file} is there`)
    return
  }
  const example = /^(?:node|java|python3) (examples\S+)$/.exec(command)?.[1]
  if (example) {
    t.ok(existsSync(path.join(root, example)), `${example} is there (receivers.test.ts runs it)`)
    return
  }
  if (command.startsWith('ackbox ')) {
    const said = await run(
      'bash',
      ['-c', command.replace(/^ackbox/, `"${inDist('src/cli/ackbox.js')}"`)],
      env
    )
    t.equal(said.code, 0, `${command}\n${said.code === 0 ? '' : said.output}`)
    return
  }
  if (command === 'touch .env && chmod 600 .env') return
  if (/^(?:echo "(?:SECRET|POSTGRES_PASSWORD)|export SIGNING_SECRET)=/.test(command)) return
  const [, ackbox] = /^(?:npx )?ackbox (.+)$/.exec(command) ?? []
  if (!ackbox) t.match(command, /^curl /, 'it is a command that this test knows')
  const asked = ackbox ? `${process.execPath} dist/src/cli/ackbox.js ${ackbox}` : command
  const said = await run('bash', ['-c', moved(asked, places)], env)
  t.equal(said.code, 0, `${command}\n${said.code === 0 ? '' : said.output}`)
  t.notMatch(said.output, 'urn:ackbox:problem', `${command} is answered well`)
  if (command.includes('wait=HANDLED'))
    t.match(said.output, /"status":"HANDLED","createdAt"/, 'and it is HANDLED')
}

const moved = (text: string, places: Record<string, string>): string =>
  Object.entries(places).reduce((all, [from, to]) => all.replaceAll(from, to), text)

async function obeyAll(t: Test, { blocks }: Page, around: Around): Promise<void> {
  for (const { language, text } of blocks) {
    if (language !== 'sh') continue
    if (!text.includes('SIGNATURE=')) {
      for (const each of text.split(' && ').length > 1 && text.startsWith('npm ci')
        ? text.split(' && ')
        : [text])
        for (const command of commands(each)) await obey(t, command, around)
      continue
    }
    const said = await run('bash', ['-c', moved(text, around.places)], around.env)
    t.equal(said.output.trim(), '200', 'the receiver takes what curl and openssl sign')
  }
}

const tokenOf = (taskNo: string): string =>
  tokens({ current: secret }).issue({ taskNo, downstream: 'warehouse', attempt: 1, at: new Date() })

/** Posts a task that cannot be delivered, and waits until its first attempt has failed. */
async function waitsForItsRetry(url: string, taskNo: string): Promise<void> {
  const posted = await fetch(`${url}/tasks`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ taskNo, messageCode: 'audit.log', messageBody: { who: 'a', did: 'b' } })
  })
  if (posted.status !== 201) throw new Error(await posted.text())
  await until('its first attempt has failed', async () =>
    (await (await fetch(`${url}/tasks/${taskNo}`)).text()).includes('"outcome":"failed"')
  )
}

const skip = without('curl', 'openssl')

t.test('every command of the README and of operations does what it says', { skip }, async t => {
  const env = { DATA_DIR: folder(t), SECRET: secret }
  const service = await start(t, env)
  const places = { 'http://127.0.0.1:3000': service.url }
  const more = { ...env, PORT: new URL(service.url).port, TOKEN: tokenOf('hello-1') }
  await obeyAll(t, pageOf('README.md'), { env: more, places })
  await obeyAll(t, pageOf('CONTRIBUTING.md'), { env: more, places })
  t.equal((await service.kill('SIGTERM')).code, 0, 'npm start ends when it is told to')

  const { PORT } = more
  const again = await start(t, { ...env, PORT, AUDIT_URL: 'http://127.0.0.1:1' })
  await waitsForItsRetry(again.url, 'order-A-1001')
  // The task of this test goes to another downstream.
  const there = { ...places, 'deliveries/warehouse/request': 'deliveries/audit/request' }
  await obeyAll(t, pageOf('docs/operations.md'), {
    env: { ...more, ACKBOX_URL: again.url },
    places: there
  })
})

t.test('whoever follows docs/receivers.md gets a task HANDLED', { skip }, async t => {
  const port = String(await freePort())
  const own = signingSecret(secret, 'warehouse')
  const env = { DATA_DIR: await dataFolder(t), SECRET: secret, PORT: port }
  const receiver = program(t, process.execPath, [path.join(root, 'examples/receivers/receiver.mjs')], {
    env: { SIGNING_SECRET: own, ACKBOX_URL: `http://127.0.0.1:${port}`, PORT: '0' }
  })
  const [, at = ''] = await receiver.said(/^listening (\d+)$/)
  await start(t, { ...env, WAREHOUSE_URL: `http://127.0.0.1:${at}` })
  await obeyAll(t, pageOf('docs/receivers.md'), {
    env: { ...env, SIGNING_SECRET: own, TOKEN: tokenOf('receivers-1') },
    places: { '127.0.0.1:3000': `127.0.0.1:${port}`, '127.0.0.1:8080': `127.0.0.1:${at}` }
  })
  const printed = await run(
    process.execPath,
    [inDist('src/cli/ackbox.js'), 'key', 'secret', 'warehouse'],
    env
  )
  t.equal(printed.output.trim(), own, 'and the secret is the one that the page says how to print')
})

t.test('the Chinese pages give the commands that were run here, in the same order', async t => {
  const shellOf = (file: string): string[] =>
    pageOf(file)
      .blocks.filter(({ language }) => language === 'sh')
      .flatMap(({ text }) => commands(text))
  for (const [english, chinese] of [
    ['README.md', 'README.zh-CN.md'],
    ['docs/operations.md', 'docs/zh/operations.md'],
    ['docs/receivers.md', 'docs/zh/receivers.md']
  ] as const) {
    t.ok(shellOf(english).length > 2, english)
    t.same(shellOf(chinese), shellOf(english), chinese)
  }
})

t.test('every link of the pages leads somewhere', async t => {
  for (const { file, links } of pages) {
    for (const link of links) {
      const [target = '', anchor] = link.split('#')
      const found = target === '' ? file : path.join(path.dirname(file), target)
      t.ok(existsSync(path.join(root, found)), `${file}: ${link}`)
      if (anchor !== undefined) t.ok(pageOf(found)?.anchors.has(anchor), `${file}: #${anchor} of ${found}`)
    }
  }
})

/** Names in capitals that are not our settings: words of the API, and variables that examples and other programs read. */
const others = new Set<string>([
  ...Object.values(words).flatMap(value => (Array.isArray(value) ? value : Object.keys(value))),
  ...Object.keys(problems),
  ...(
    'GET POST PUT PATCH DELETE SIGTERM SIGKILL NODE_ENV CI BENCH_CONCURRENCY ACKBOX_URL ACKBOX_KEY SIGNING_SECRET TOKEN ID AT BODY KEY ' +
    'OUTBOX_STUCK NULL SESSION_VARIABLES_ADMIN POSTGRES_PORT REDIS_PORT UNREACHABLE SIGNATURE DOWNSTREAM NAME WAREHOUSE_URL LEDGER_URL POINTS_URL TRACKER_URL WAL UPDATE POSTGRES_PASSWORD ' +
    'OTEL_EXPORTER_OTLP_HEADERS OTEL_TRACES_SAMPLER OTEL_TRACES_SAMPLER_ARG OTEL_RESOURCE_ATTRIBUTES OTEL_BSP_MAX_QUEUE_SIZE'
  ).split(' ')
])

t.test('every setting that the pages name exists', async t => {
  // The pages of the transports contain words of the brokers, which are in capitals too.
  for (const { file, blocks, code } of pages.filter(({ file }) => !/^docs\/(zh\/)?transports\//.test(file))) {
    const shell = blocks.filter(({ language }) => language === 'sh').map(({ text }) => text)
    const named = [
      ...code.flatMap(text => text.match(/^[A-Z][A-Z0-9_]+(?==|$)/) ?? []),
      ...shell.flatMap(text => [...text.matchAll(/(?<![\w"'{])([A-Z][A-Z0-9_]+)=/g)].map(([, name]) => name))
    ]
    for (const name of new Set(named))
      t.ok(name && (name in settings.shape || others.has(name)), `${file}: ${name}`)
  }
})

t.test('every npm command that the pages name exists', async t => {
  for (const { file, text } of pages)
    for (const [, verb = ''] of text.matchAll(/npm run (?:-s )?([a-z]+(?::[a-z]+)*)/g))
      t.ok(scripts[verb], `${file}: npm run ${verb}`)
})

t.test('the handler in the README compiles, and gives the requests it shows', async t => {
  // Inside the project, so that `ackbox/handler` resolves to this package.
  const made = inDist(`readme-${process.pid}`)
  t.teardown(() => rmSync(made, { recursive: true, force: true }))
  mkdirSync(made, { recursive: true })
  const handler = pageOf('README.md').blocks.find(
    ({ language, text }) => language === 'ts' && text.includes('defineHandler')
  )
  // The types come from the sources: `npm test` writes no declarations. test/package compiles with those of the package.
  const compilerOptions = {
    rootDir: '../..',
    noEmit: true,
    incremental: false,
    declaration: false,
    customConditions: ['ackbox-source']
  }
  writeFileSync(
    path.join(made, 'tsconfig.json'),
    JSON.stringify({
      extends: '../../tsconfig.json',
      compilerOptions,
      include: ['*.ts', '../../src/**/*.d.ts']
    })
  )
  const compile = async (text: string): Promise<Said> => {
    writeFileSync(path.join(made, 'order-shipped.ts'), text)
    return run(process.execPath, [path.join(root, 'node_modules/typescript/lib/tsc.js'), '-p', made], {})
  }
  const wrong = await compile(handler?.text.replace('body.orderId}', 'body.orderNo}') ?? '')
  t.match(wrong.output, "Property 'orderNo' does not exist", 'a misspelt member would not compile')
  const right = await compile(handler?.text ?? '')
  t.equal(right.code, 0, `it compiles\n${right.output}`)

  const env = {
    HANDLERS_DIR: made,
    LEDGER_URL: 'http://127.0.0.1:8081',
    POINTS_URL: 'http://127.0.0.1:8082'
  }
  const body = '{"orderId":"10/01","cents":4200}'
  const dry = ['--dry-run', 'order.shipped', body]
  const plain = await run(process.execPath, [inDist('src/cli/ackbox.js'), 'handlers', ...dry], env)
  t.match(plain.output, 'POST http://127.0.0.1:8081/orders/10%2F01')
  t.match(plain.output, 'no request: `when` returned false (SKIPPED)')
  const vip = await run(
    process.execPath,
    [inDist('src/cli/ackbox.js'), 'handlers', ...dry, '--scene', 'vip'],
    env
  )
  t.match(vip.output, 'POST http://127.0.0.1:8082/grants')
  t.match(vip.output, '{"order":"10/01","points":42}')
})
