// Takes long: npm run test:long.
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'

/** `npm run handlers`, in its own process. */
function handlers(
  args: string[],
  env: Record<string, string> = {}
): Promise<{ code: number; out: string; err: string }> {
  const program = join(import.meta.dirname, '../../src/cli/ackbox.js')
  return new Promise(resolve => {
    const child = execFile(
      process.execPath,
      [program, 'handlers', ...args],
      { env: { PATH: process.env['PATH'], ...env } },
      (_, out, err) => resolve({ code: child.exitCode ?? -1, out, err })
    )
  })
}

t.test('it lists every handler and downstream', async t => {
  const { code, out } = await handlers([])
  t.equal(code, 0)
  t.match(out, /order\.paid +order-paid\.\w+ +warehouse +http +in 4s +10 +1s 2s 5s … +50/)
  t.match(out, /3 handlers, 6 downstreams, no errors/)
})

t.test('a handler that keeps a timer open does not keep the command open', async t => {
  const dir = t.testdir({
    'paid.mjs': `import { defineHandler, z } from 'ackbox/handler'
      setInterval(() => {}, 1000)
      const one = { transport: 'http', request: () => ({ url: 'https://example.com' }) }
      export default defineHandler({ messageCode: 'order.paid', body: z.object({}), downstreams: { one } })`
  })
  t.match(await handlers([], { HANDLERS_DIR: dir }), { code: 0, out: /\n1 handler, 1 downstream, no errors/ })
  t.match(await handlers(['--dry-run', 'order.piad', '{}'], { HANDLERS_DIR: dir }), {
    code: 1,
    err: /order\.paid/
  })
})

t.test('a wrong folder ends it with 1 and all that is wrong', async t => {
  const dir = mkdtempSync(join(tmpdir(), 'handlers-'))
  t.teardown(() => rmSync(dir, { recursive: true }))
  writeFileSync(join(dir, 'a.mjs'), '')
  const { code, err } = await handlers([], { HANDLERS_DIR: dir })
  t.equal(code, 1)
  t.match(err, /1 error in the handlers of .*a\.mjs\n {4}it has no default export/s)
  t.notMatch(err, /\n {4}at /, 'no stack: nobody has to read our code')
})

const typed = (request: string) => `import { defineHandler, z } from 'ackbox/handler'
export default defineHandler({
  messageCode: 'points.earned',
  body: z.object({ cents: z.int() }),
  downstreams: {
    points: { transport: 'http', request: ({ body, raw }) => ({ url: 'https://points.example/', body: ${request} }) }
  }
})
`
const tsconfig = JSON.stringify({
  compilerOptions: {
    target: 'es2023',
    module: 'nodenext',
    strict: true,
    noEmit: true,
    skipLibCheck: true,
    types: []
  },
  include: ['handlers', 'elsewhere']
})

t.test('a wrong member of the body is found before a task brings it: the types are checked', async t => {
  const dir = t.testdir({
    'tsconfig.json': tsconfig,
    handlers: { 'points.ts': typed('JSON.stringify({ points: body.cent / 100 })') },
    elsewhere: { 'broken.ts': 'export const n: number = "text"' }
  })
  const env = { HANDLERS_DIR: join(dir, 'handlers') }
  const { code, out, err } = await handlers([], env)
  t.equal(code, 1)
  t.match(err, /handlers\/points\.ts:6:\d+ TS\d+: Property 'cent' does not exist on type/)
  t.notMatch(err, 'broken.ts', 'only what is wrong in the handlers')
  t.match(out, /1 handler, 1 downstream, 1 error/)
  writeFileSync(join(dir, 'handlers/points.ts'), typed('JSON.stringify({ points: body.cents / 100 })'))
  t.match(await handlers([], env), { code: 0, err: '' })
})

t.test('without TypeScript it says in one line that no types are checked', async t => {
  const dir = mkdtempSync(join(tmpdir(), 'handlers-'))
  t.teardown(() => rmSync(dir, { recursive: true }))
  writeFileSync(join(dir, 'points.ts'), typed('raw'))
  t.match(await handlers([], { HANDLERS_DIR: dir }), {
    code: 0,
    err: /^The types of the handlers are not checked: .*typescript.*\n$/
  })
})

t.test('a broker that a start would miss is an error', async t => {
  const dir = t.testdir({
    'paid.mjs': `import { defineHandler, z } from 'ackbox/handler'
      const stock = { transport: 'kafka', request: ({ raw }) => ({ topic: 'stock', value: raw }) }
      export default defineHandler({ messageCode: 'order.paid', body: z.object({}), downstreams: { stock } })`
  })
  t.match(await handlers([], { HANDLERS_DIR: dir }), {
    code: 1,
    out: /order\.paid.* kafka .*1 error$/ms,
    err: 'a downstream uses kafka, but no broker for it is set: set BROKER_KAFKA=kafka://host\n'
  })
  const broker = { BROKER_KAFKA: 'kafka://127.0.0.1:9092' }
  t.match(await handlers([], { HANDLERS_DIR: dir, ...broker }), { code: 0, out: /no errors/, err: '' })
  t.match(await handlers(['--dry-run', 'order.paid', '{}'], { HANDLERS_DIR: dir }), { code: 0 })
})

t.test('a dry run shows what each downstream would get, and whom it leaves out', async t => {
  const { code, out } = await handlers([
    '--dry-run',
    'material.sync',
    '{"materialId":"m/1", "version":2,"change":"removed"}'
  ])
  t.equal(code, 0)
  t.match(out, /review\n {2}no request: `when` returned false \(SKIPPED\)/)
  t.match(out, /ads\n {2}PUT http:\/\/demo-receiver\/materials\/m%2F1\n/)
  t.match(
    out,
    '{"materialId":"m/1", "version":2,"change":"removed"}',
    'the very text, not a copy of its meaning'
  )
  t.match(out, 'Nothing was sent.')
})

t.test('a dry run says of a `when` without a true or false that the task is sent', async t => {
  const dir = t.testdir({
    'paid.mjs': `import { defineHandler, z } from 'ackbox/handler'
      const one = { transport: 'http', when: async () => { throw new Error('oh') }, request: () => ({ url: 'https://example.com' }) }
      export default defineHandler({ messageCode: 'order.paid', body: z.object({}), downstreams: { one } })`
  })
  t.match(await handlers(['--dry-run', 'order.paid', '{}'], { HANDLERS_DIR: dir }), {
    code: 0,
    out: /WARNING: `when` failed, so the task is sent: when must return .* a Promise\n {2}POST https:/
  })
})

t.test(
  'a handler of half messages is listed as one, and a dry run says where its producer is asked',
  async t => {
    const dir = mkdtempSync(join(tmpdir(), 'handlers-'))
    t.teardown(() => rmSync(dir, { recursive: true }))
    const handler = (checkBack: string) =>
      writeFileSync(
        join(dir, 'a.mjs'),
        `import { defineHandler, env, url, z } from 'ackbox/handler'
      export default defineHandler({
        messageCode: 'order.paid', body: z.unknown(), checkBack: ${checkBack},
        downstreams: { shop: { transport: 'http', request: () => ({ url: url\`http://shop.test/\` }) } }
      })`
      )
    const env = { HANDLERS_DIR: dir, SHOP_URL: 'http://shop.test' }
    handler('({ task }) => ({ url: url`${env.SHOP_URL}/check/${task.taskNo}`, headers: { via: "ackbox" } })')
    t.match(await handlers([], env), { code: 0, out: /half messages: order\.paid/ })
    t.match(await handlers(['--dry-run', 'order.paid', '{}'], env), {
      code: 0,
      out: /\ncheck back\n {2}POST http:\/\/shop\.test\/check\/order\.paid%3A%3A\w{32}\n {2}via: ackbox\n/
    })
    handler('() => { throw new Error("no shop") }')
    t.match(await handlers(['--dry-run', 'order.paid', '{}'], env), { out: /the check would fail: no shop/ })
    handler('"http://shop.test"')
    t.match(await handlers([], env), {
      code: 1,
      err: /checkBack is 'http:\/\/shop\.test'\n.*write a function/
    })
    t.match(await handlers([], { HANDLERS_DIR: dir }), { code: 1 })
  }
)

t.test('a dry run does not call beforeSend, which may have effects, and says so', async t => {
  const dir = mkdtempSync(join(tmpdir(), 'handlers-'))
  t.teardown(() => rmSync(dir, { recursive: true }))
  writeFileSync(
    join(dir, 'a.mjs'),
    `import { defineHandler, url, z } from 'ackbox/handler'
     const request = () => ({ url: url\`http://shop.test/\` })
     export default defineHandler({
       messageCode: 'order.paid', body: z.unknown(),
       downstreams: {
         shop: { transport: 'http', request, beforeSend: () => console.log('it reserves a seat') },
         plain: { transport: 'http', request }
       }
     })`
  )
  const { code, out } = await handlers(['--dry-run', 'order.paid', '{}'], { HANDLERS_DIR: dir })
  t.equal(code, 0)
  t.match(
    out,
    /\nshop\n {2}beforeSend is not called: it may skip or postpone the attempt\n {2}POST http:\/\/shop\.test\/\n/
  )
  t.match(out, /\nplain\n {2}POST /)
  t.notMatch(out, 'it reserves a seat')
})

t.test('a dry run of what would be refused says how', async t => {
  const table: [args: string[], says: RegExp][] = [
    [['order.piad', '{}'], /no handler has messageCode 'order\.piad': did you mean 'order\.paid'\?/],
    [['order.paid', '{"orderId":7}'], /422.*\/orderId {2}Invalid input.*\/cents/s],
    [['order.paid', '{oops'], /The messageBody is not JSON/],
    [['order.paid', '{"orderId":"..","cents":1}'], /would not get a request/],
    [
      ['order.paid', '{"orderId":"a","orderId":"b","cents":1}'],
      /^The messageBody is not I-JSON .*same member name twice/
    ],
    [['order.paid', '7'], /422:\n {2}the whole messageBody {2}Invalid input/],
    [['order.paid', '{},"delay":5'], /^The messageBody is not JSON: /],
    [['order.paid', '{"orderId":"1","cents":1}', '--scene', 'a\u0007b'], /422:\n {2}--scene {2}must be/],
    [['order.paid'], /^Missing messageBody\nnpm run handlers -- --help shows/],
    [[], /^Missing messageCode\n/],
    [['order.paid', '{}', 'x'], /^handlers --dry-run does not take x\n/]
  ]
  for (const [args, says] of table) {
    const { code, err } = await handlers(['--dry-run', ...args])
    t.equal(code, 1, args.join(' '))
    t.match(err, says)
  }
  for (const args of [['order.paid', '{}'], ['frob'], ['--scene', 'vip']])
    t.match(await handlers(args), { code: 1, out: '', err: /^Only --dry-run takes / }, args.join(' '))
})

t.test('a dry run refuses a url that no request could go to, and says where url was forgotten', async t => {
  const dir = mkdtempSync(join(tmpdir(), 'handlers-'))
  t.teardown(() => rmSync(dir, { recursive: true }))
  writeFileSync(
    join(dir, 'a.mjs'),
    `import { defineHandler, url, z } from 'ackbox/handler'
     const to = (name, request) => [name, { transport: 'http', request }]
     export default defineHandler({
       messageCode: 'order.paid',
       body: z.object({ id: z.string(), kind: z.enum(['new', 'old']), lines: z.array(z.object({ sku: z.string() })) }),
       downstreams: Object.fromEntries([
         to('bare', ({ body }) => ({ url: 'shop.example.com/orders/' + body.id })),
         to('metadata', () => ({ url: 'http://169.254.169.254/latest' })),
         to('forgot', ({ body }) => ({ url: \`https://shop.example.com/\${body.kind}/\${body.id}?sku=\${body.lines[0].sku}\` })),
         to('by-hand', ({ body }) => ({ url: new URL('https://shop.example.com/' + encodeURIComponent(body.id)) })),
         to('tagged', ({ body }) => ({ url: url\`https://shop.example.com/\${body.id}\` })),
         to('in-the-body', ({ body }) => ({ url: 'https://shop.example.com/', body: body.id }))
       ])
     })`
  )
  const posted = '{"id":"7","kind":"new","lines":[{"sku":"a"}]}'
  const { code, out, err } = await handlers(['--dry-run', 'order.paid', posted], { HANDLERS_DIR: dir })
  const said = (name: string) => out.split(/\n\n/).find(part => part.startsWith(`${name}\n`)) ?? ''
  t.equal(code, 1)
  t.match(err, /2 of 6 downstreams would not get a request/)
  t.match(said('bare'), /The attempt would fail: .*must start with http:\/\/ or https:\/\//)
  t.match(said('metadata'), /The attempt would fail: .*cloud metadata/)
  t.match(said('forgot'), /WARNING: \/id and \/lines\/0\/sku go into the url without encoding/)
  t.match(said('forgot'), 'POST https://shop.example.com/new/7?sku=a')
  for (const name of ['by-hand', 'tagged', 'in-the-body']) t.notMatch(said(name), /WARNING|fail/, name)
})

t.test('a reader that wants only the first line, as head does, breaks nothing', async t => {
  const dir = mkdtempSync(join(tmpdir(), 'handlers-'))
  t.teardown(() => rmSync(dir, { recursive: true }))
  // The second request waits until the reader has gone. The later ones follow it.
  const names = ['first', 'second', 'third', 'fourth']
  const downstreams = names.map(name => `${name}: { transport: 'http', request: ${name} }`)
  writeFileSync(
    join(dir, 'a.mjs'),
    `import { once } from 'node:events'
     import { defineHandler, z } from 'ackbox/handler'
     const first = () => ({ url: 'https://shop.example.com' })
     const second = async () => (await once(process.stdin.resume(), 'end'), first())
     const third = async () => first()
     const fourth = third
     export default defineHandler({ messageCode: 'a', body: z.any(), downstreams: { ${downstreams.join()} } })`
  )
  const program = join(import.meta.dirname, '../../src/cli/ackbox.js')
  const env = { PATH: process.env['PATH'], HANDLERS_DIR: dir }
  const child = spawn(process.execPath, [program, 'handlers', '--dry-run', 'a', '1'], {
    env,
    stdio: 'pipe'
  })
  let err = ''
  child.stderr.on('data', bytes => (err += String(bytes)))
  child.stdout.once('data', () => child.stdout.destroy())
  await once(child.stdout, 'close')
  child.stdin.end()
  const [code] = (await once(child, 'close')) as [number | null]
  t.equal(code, 0)
  t.equal(err, '')
})

t.test('--help says how, and so does a flag that is not one', async t => {
  t.match(await handlers(['--help']), { code: 0, out: /--dry-run <messageCode>/ })
  t.match(await handlers(['--dryrun']), { code: 1, err: /--dryrun'\nnpm run handlers -- --help shows/ })
})
