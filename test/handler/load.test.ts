import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { builtInHandlers } from '../../src/handler/files.ts'
import { HandlersError, loadHandlers, type Registry } from '../../src/handler/load.ts'
import type { Task } from '../../src/domain/types.ts'
import { only } from '../support/only.ts'

const head = "import { defineHandler, env, url, z } from 'ackbox/handler'\n"
const http = "transport: 'http', request: ({ raw }) => ({ url: url`https://a.example/x`, body: raw })"
const handler = (code: string, downstreams: string, rest = '') =>
  `${head}export default defineHandler({ messageCode: '${code}', body: z.object({ id: z.string() }), downstreams: { ${downstreams} }${rest} })`

/** A folder of handlers outside the project. Node resolves none of our packages from there. */
function folder(t: Test, files: Record<string, string>): string {
  const dir = mkdtempSync(join(tmpdir(), 'handlers-'))
  t.teardown(() => rmSync(dir, { recursive: true }))
  for (const [name, text] of Object.entries(files)) writeFileSync(join(dir, name), text)
  return dir
}

const load = (dir: string, env: Record<string, string> = {}): Promise<Registry> =>
  loadHandlers({ dir, builtIn: builtInHandlers, env, transports: ['http'] })

async function problemsOf(dir: string, env: Record<string, string> = {}): Promise<string[]> {
  const err: unknown = await load(dir, env).then(
    () => new Error('it loaded'),
    (thrown: unknown) => thrown
  )
  if (!(err instanceof HandlersError)) throw err
  return err.problems.map(({ file, what, fix }) => `${file}: ${what} → ${fix}`)
}

const task: Task = {
  id: '1',
  taskNo: 'A-1',
  messageCode: 'a',
  sceneType: '',
  messageBody: '{}',
  deliverStartTime: null,
  needCallback: null,
  retryTimes: null,
  orderingKey: null,
  extend: null,
  traceparent: null,
  createdAt: new Date(0),
  createdBy: 'test'
}

t.test('a folder outside of the project needs no node_modules to use ackbox/handler', async t => {
  const dir = folder(t, {
    'a.mjs': handler(
      'a',
      "w: { transport: 'http', request: ({ body, raw }) => ({ url: url`${env.W_URL}/x/${body.id}`, body: raw }) }"
    ),
    'b.js': `import { z } from 'zod'\n${handler('b', `v: { ${http} }`).replace(', z }', ' }')}`,
    '_helper.js': 'export const x = 1',
    'notes.md': 'not a handler'
  })
  writeFileSync(join(dir, 'package.json'), '{ "type": "module" }')
  const { handlers, downstreams } = await load(dir, { W_URL: 'https://w.example' })
  t.same([...handlers.keys()], ['a', 'b'])
  t.same([...downstreams.keys()], ['w', 'v'])
  const request = await handlers
    .get('a')
    ?.downstreams[0]?.request({ task, body: { id: '../7' }, raw: '{ }', attempt: 1, deliveryId: 'd' })
  t.match(request, { url: 'https://w.example/x/..%2F7', body: '{ }' })
})

t.test('zod comes with ackbox/handler, unless the folder has one of its own', async t => {
  const dir = folder(t, {
    'a.mjs': `import { z } from 'zod'\n${handler('a', `w: { ${http} }`).replace(', z }', ' }')}`
  })
  mkdirSync(join(dir, 'node_modules/zod'), { recursive: true })
  const own = 'export const z = { object() { throw new Error("a zod of its own") }, string() {} }'
  writeFileSync(join(dir, 'node_modules/zod/index.mjs'), own)
  writeFileSync(
    join(dir, 'node_modules/zod/package.json'),
    '{ "name": "zod", "type": "module", "exports": "./index.mjs" }'
  )
  t.match(await problemsOf(dir), only(/^a\.mjs: .*a zod of its own/))
})

t.test('what a handler leaves out gets the documented defaults', async t => {
  const { handlers, downstreams } = await load(folder(t, { 'a.mjs': handler('a', `w: { ${http} }`) }))
  t.match(handlers.get('a')?.downstreams[0], {
    name: 'w',
    transport: 'http',
    needCallback: undefined,
    policy: {
      times: undefined,
      backoff: { kind: 'exponential', firstMs: 10_000, maxMs: 3_600_000 },
      receiptTimeoutMs: 60_000
    },
    limit: { concurrency: 50, timeoutMs: 10_000 }
  })
  t.notOk('perSecond' in (downstreams.get('w') ?? {}))
})

t.test('times are read in every way of writing them', async t => {
  const one = (backoff: string) =>
    `{ ${http}, receiptTimeout: '1.5m', retry: { times: 3, backoff: ${backoff} }, limit: { perSecond: 5, timeout: 2000 } }`
  const { handlers } = await load(
    folder(t, { 'a.mjs': handler('a', `w: ${one("['500ms', '10s', '1h', 700]")}, v: ${one("'30s'")}`) })
  )
  const [w, v] = handlers.get('a')?.downstreams ?? []
  t.match(w, {
    policy: {
      times: 3,
      backoff: { kind: 'list', ms: only(500, 10_000, 3_600_000, 700) },
      receiptTimeoutMs: 90_000
    },
    limit: { concurrency: 50, perSecond: 5, timeoutMs: 2_000 }
  })
  t.match(v?.policy.backoff, { kind: 'list', ms: only(30_000) })
})

t.test('everything that is wrong in a folder is said at one start, with its file and what to do', async t => {
  const dir = folder(t, {
    'a-none.mjs': `${head}export const handler = 1`,
    'b-first.mjs': handler('same', `shared: { ${http}, limit: { concurrency: 5 } }`),
    'c-second.mjs': handler(
      'same',
      `shared: { ${http}, limit: { concurrency: 6 } }, x: { ${http}, limits: {} }`
    ),
    'd-limits.mjs': handler('d', `shared: { ${http}, limit: { concurrency: 6 } }`),
    'e-transport.mjs': handler('e', `e: { ${http.replace("'http'", "'htpp'")} }`),
    'f-env.mjs': `${head}const top = env.TOP_URL\n${handler('f', "f: { transport: 'http', request: () => ({ url: url`${env.HOOK_URL}/x` }) }").replace(head, '')}`,
    'g-times.mjs': handler(
      'g',
      `g: { ${http}, receiptTimeout: '60 sec', retry: { times: 0, backoff: ['1s', 'soon'] }, limit: { timeout: '1d', pipelining: 101 } }`
    ),
    'g-unit.mjs': handler('unit', `unit: { ${http}, limit: { timeout: 10 } }`),
    'g-lines.mjs': handler('lines', `shared: { ${http}, limit: { concurrency: 5, pipelining: 2 } }`),
    'h-names.mjs': handler('no spaces', `Bad_Name: { ${http} }`),
    'i-throws.mjs': "throw new Error('at the top')",
    'j-syntax.mjs': 'export default {',
    'k-null.mjs': 'export default null',
    'l-plain.mjs':
      "export default { messageCode: 'l', body: { id: 'string' }, downstreams: {}, onReceipt: 1 }"
  })
  const said = await problemsOf(dir)
  const expected = [
    /^a-none\.mjs: it has no default export → export default defineHandler/,
    /^c-second\.mjs: messageCode 'same' already has a handler in b-first\.mjs/,
    /^c-second\.mjs: downstreams\.x\.limits is not a field → did you mean limit\?/,
    /^d-limits\.mjs: downstream 'shared' has concurrency 6 here and concurrency 5 in b-first\.mjs/,
    /^e-transport\.mjs: downstreams\.e\.transport is 'htpp', which is not a transport → did you mean 'http'\?/,
    /^f-env\.mjs: it needs TOP_URL, which is not set → set TOP_URL/,
    /^f-env\.mjs: it needs HOOK_URL, which is not set → set HOOK_URL/,
    /^g-lines\.mjs: downstream 'shared' has pipelining 2 here and pipelining not set in b-first\.mjs/,
    /^g-times\.mjs: downstreams\.g\.limit\.pipelining is 101 → write a whole number from 1 to 100/,
    /^g-times\.mjs: downstreams\.g\.receiptTimeout is '60 sec', not a duration → write '500ms', '10s'/,
    /^g-times\.mjs: downstreams\.g\.retry\.times is 0 → write a whole number from 1 to 100/,
    /^g-times\.mjs: downstreams\.g\.retry\.backoff\[1\] is 'soon', not a duration/,
    /^g-times\.mjs: downstreams\.g\.limit\.timeout is '1d' → write '10ms' to '10m'/,
    /^g-unit\.mjs: downstreams\.unit\.limit\.timeout is 10, without a unit → write '10s' or '10ms'/,
    /^h-names\.mjs: messageCode is 'no spaces'/,
    /^h-names\.mjs: the name of downstreams\.Bad_Name is invalid/,
    /^i-throws\.mjs: it does not load: Error: at the top/,
    /^j-syntax\.mjs: it does not load: SyntaxError/,
    /^k-null\.mjs: its default export is null/,
    /^l-plain\.mjs: body is an object, not a zod 4 schema/,
    /^l-plain\.mjs: it has no downstreams/,
    /^l-plain\.mjs: onReceipt is 1/
  ]
  for (const each of expected) t.equal(said.filter(line => each.test(line)).length, 1, String(each))
  t.equal(said.length, expected.length, said.join('\n'))
})

t.test('requests share connections over HTTP only', async t => {
  const queue = "q: { transport: 'rabbitmq', request: () => ({}), limit: { pipelining: 2 } }"
  const dir = folder(t, { 'a.mjs': handler('a', queue) })
  const transports = ['http', 'rabbitmq']
  await t.rejects(
    loadHandlers({ dir, builtIn: builtInHandlers, env: {}, transports }),
    /limit\.pipelining works only with http, not with rabbitmq\n +→ leave it out/
  )
})

t.test('the message of the error holds all of it, a file a paragraph', async t => {
  const dir = folder(t, { 'a.mjs': `${head}`, 'b.mjs': 'export default 1' })
  await t.rejects(load(dir), {
    message: `2 errors in the handlers of ${dir}:

  a.mjs
    it has no default export
      → export default defineHandler({ … }), or start the name of a helper with _

  b.mjs
    its default export is 1
      → export default defineHandler({ … })`
  })
})

t.test('a handler of CommonJS is told with its remedy, and a helper of CommonJS is none', async t => {
  const helpers = { '_helper.cjs': '', 'a.test.cjs': '', 'types.d.cts': '' }
  const fine = { 'a.mjs': handler('a', `w: { ${http} }`), ...helpers }
  const dir = folder(t, fine)
  mkdirSync(join(dir, 'old'))
  writeFileSync(join(dir, 'old/helper.cjs'), '')
  t.same([...(await load(dir)).handlers.keys()], ['a'])
  t.match(
    await problemsOf(folder(t, { ...fine, 'b.cjs': 'module.exports = 1', 'c.cts': '' })),
    only(
      /^b\.cjs: it is CommonJS, which is not loaded → rename it to \.js or \.mjs/,
      /^c\.cts: it is CommonJS, which is not loaded → rename it to \.ts or \.mts/
    )
  )
})

t.test('a folder that is not there, or empty, is said and not taken for no handlers', async t => {
  const dir = folder(t, { 'readme.md': '' })
  t.match(await problemsOf(dir), only(/the folder has no handlers/))
  t.match(await problemsOf(join(dir, 'nowhere')), only(/the folder does not exist → set HANDLERS_DIR/))
})

t.test(
  'TypeScript in HANDLERS_DIR loads on every Node, with its helpers, and an error keeps its line',
  async t => {
    const dir = folder(t, {
      'a.ts': `import { place } from './_place.ts'
${handler('a', `w: { ${http.replace("'http'", 'place()')} }`)}
const typed: number = 1`,
      'b.mts': `${handler('b', `v: { ${http} }`)} satisfies object`,
      '_place.ts': `type Name = 'http'
export function place(): Name {
  if ((globalThis as { wrong?: boolean }).wrong) {
    throw new Error('asked to')
  }
  return 'http' as const
}`
    })
    t.same([...(await load(dir)).handlers.keys()], ['a', 'b'])
    const { place } = (await import(join(dir, '_place.ts'))) as { place: () => string }
    Object.assign(globalThis, { wrong: true })
    t.teardown(() => Object.assign(globalThis, { wrong: undefined }))
    let stack = ''
    try {
      place()
    } catch (err) {
      stack = String((err as Error).stack)
    }
    t.match(stack, /_place\.ts:4:11/)
  }
)

t.test('a SyntaxError is told with its file and line, in a handler and in what it imports', async t => {
  const fine = `import './_helper.mjs'\n${handler('a', `w: { ${http} }`)}`
  const cases: [where: RegExp, files: Record<string, string>][] = [
    [/^a\.mjs: .*SyntaxError: .*, in a\.mjs, line 3 →/, { 'a.mjs': 'export default {\n  a: 1,\n  b: ,\n}' }],
    [
      /^a\.mjs: .*SyntaxError: .*, in _helper\.mjs, line 2 →/,
      { 'a.mjs': fine, '_helper.mjs': 'let a\nlet a' }
    ],
    [
      /^a\.mjs: .*provide an export.*, in a\.mjs, line 1 →/,
      {
        'a.mjs': fine.replace("'./", "{ x } from './"),
        '_helper.mjs': ''
      }
    ],
    [
      /^a\.ts: .*SyntaxError.*Expression expected, in a\.ts, line 2 →/,
      { 'a.ts': 'const a: number = 1\nexport default { a: , }' }
    ],
    [
      /^a\.ts: .*SyntaxError.*already been declared, in a\.ts, line 3 →/,
      { 'a.ts': 'type A = number\nlet a: A\nlet a' }
    ],
    [/^a\.ts: .*SyntaxError.*enum.*, in a\.ts, line 2 →/, { 'a.ts': 'export default 1\nenum A { b }' }],
    [
      /^a\.mjs: .*SyntaxError: .*data\.json: .*, in data\.json, line 4 →/,
      {
        'a.mjs': "import data from './data.json' with { type: 'json' }\nexport default data",
        'data.json': '{\n  "a": 1,\n  "b": 2,\n}\n'
      }
    ],
    // The comment names a folder.
    [
      /^a\.mjs: .*SyntaxError: .*, in a\.mjs, line 2 →/,
      { 'a.mjs': "// as it came from './'\nexport default { a: , }" }
    ]
  ]
  for (const [where, files] of cases) t.match(await problemsOf(folder(t, files)), only(where))
})

t.test('an error at the top of a file is told with the line that threw it', async t => {
  const cases: [where: RegExp, files: Record<string, string>][] = [
    [
      /^a\.mjs: .*TypeError: .*'foo'\), in a\.mjs, line 2 →/,
      { 'a.mjs': 'const x = undefined\nexport default x.foo' }
    ],
    [
      /^a\.mjs: .*SyntaxError: .*JSON.*, in _helper\.mjs, line 2 →/,
      { 'a.mjs': "import './_helper.mjs'\nexport default 1", '_helper.mjs': "\nJSON.parse('{a')" }
    ]
  ]
  for (const [where, files] of cases) t.match(await problemsOf(folder(t, files)), only(where))
})

t.test('a top-level await without end is told', async t => {
  const dir = folder(t, { 'a.mjs': 'await new Promise(() => {})\nexport default 1' })
  const loading = loadHandlers({ dir, builtIn: builtInHandlers, env: {}, transports: ['http'], importMs: 50 })
  await t.rejects(loading, { message: /a\.mjs\n.*its top-level await has not ended after 0\.05 s/ })
})

t.test(
  'a name in a comment, of process.env, or of another object is not a name that a handler needs',
  async t => {
    const dir = folder(t, {
      'a.mjs': `${handler('a', `w: { ${http} }`)}
// env.IN_COMMENT
/* env.IN_BLOCK */
export const x = [process.env.OWN_BUSINESS, { env: {} }.env.OTHER]`
    })
    t.ok((await load(dir)).handlers.has('a'))
  }
)

t.test('an env name that vanished fails the attempt that needs it, by name, and nothing else', async t => {
  const dir = folder(t, {
    'a.mjs': handler(
      'a',
      "w: { transport: 'http', request: () => ({ url: url`${env['GONE' + '_URL']}/x` }) }"
    )
  })
  const { handlers } = await load(dir)
  t.throws(
    () => handlers.get('a')?.downstreams[0]?.request({ task, body: {}, raw: '', attempt: 1, deliveryId: '' }),
    {
      message: /GONE_URL/
    }
  )
})

t.test('a request with a misspelt member fails its attempt instead of sending something else', async t => {
  const bad =
    "w: { transport: 'http', request: async ({ raw }) => ({ url: url`https://a.example/`, boddy: raw }) }, v: { transport: 'http', request: () => 'https://a.example' }"
  const { handlers } = await load(folder(t, { 'a.mjs': handler('a', bad) }))
  const [w, v] = handlers.get('a')?.downstreams ?? []
  const sending = { task, body: {}, raw: '', attempt: 1, deliveryId: '' }
  await t.rejects(async () => w?.request(sending), {
    message: 'the request of w has the unknown member boddy: did you mean body?'
  })
  await t.rejects(async () => v?.request(sending), { message: 'the request of v is string, not an object' })
})

t.test('a request may be whatever can be awaited', async t => {
  const query =
    "w: { transport: 'http', request: () => ({ then: resolve => resolve({ url: url`https://a.example/` }) }) }"
  const { handlers } = await load(folder(t, { 'a.mjs': handler('a', query) }))
  const [w] = handlers.get('a')?.downstreams ?? []
  const sending = { task, body: {}, raw: '', attempt: 1, deliveryId: '' }
  t.match(await w?.request(sending), { url: 'https://a.example/' })
})

t.test('handlers that share a downstream have the same signing secrets, or the start is refused', async t => {
  const [one, other] = [7, 8].map(byte => `whsec_${Buffer.alloc(24, byte).toString('base64')}`)
  const w = (more = '') => `w: { ${http}${more} }, v: { ${http}, secrets: ['${one}', '${other}'] }`
  const dir = folder(t, {
    'a.mjs': handler('a', w(`, secrets: ['${one}']`)),
    'b.mjs': handler('b', w(`, secrets: ['${other}']`)),
    'c.mjs': handler('c', w()),
    'd.mjs': handler('d', w(`, secrets: ['${one}']`))
  })
  const said = await problemsOf(dir)
  t.match(
    said,
    only(
      /^b\.mjs: downstream 'w' has secrets here and others in a\.mjs/,
      /^c\.mjs: downstream 'w' has no secrets here and secrets in a\.mjs/
    )
  )
  t.notMatch(said.join(), 'whsec_')
})

t.test('signing secrets are checked for their form and never repeated in a message', async t => {
  const secret = `whsec_${Buffer.alloc(24, 7).toString('base64')}`
  const dir = folder(t, {
    'a.mjs': handler('a', `w: { ${http}, secrets: ['${secret}', '${secret}'] }`),
    'b.mjs': handler('b', `v: { ${http}, secrets: ['whsec_hunter2'] }, u: { ${http}, secrets: [] }`),
    'c.mjs': handler('c', `x: { ${http}, secrets: [env.X_SECRET] }`),
    // 4n+1 letters: Node decodes them, and no other language.
    'd.mjs': handler('d', `y: { ${http}, secrets: ['${secret}A'] }`)
  })
  const said = await problemsOf(dir)
  t.equal(said.length, 4, said.join('\n'))
  t.match(said, [
    /b\.mjs: downstreams\.v\.secrets/,
    /b\.mjs: downstreams\.u\.secrets/,
    /c\.mjs: it needs X_SECRET/,
    /d\.mjs: downstreams\.y\.secrets .*base64 of 24 to 64 bytes/s
  ])
  t.notMatch(said.join(), 'hunter2')
})

t.test('a handler or a folder that cannot be read is said with its name', async t => {
  const dir = folder(t, { 'good.mjs': handler('a', `w: { ${http} }`) })
  symlinkSync('nowhere', join(dir, 'gone.mjs'))
  t.match(
    await problemsOf(dir),
    only(/^gone\.mjs: it cannot be read: ENOENT.* → let the user of this process/)
  )
  symlinkSync('loop', join(dir, 'loop'))
  t.match(
    await problemsOf(join(dir, 'loop')),
    only(/loop: the folder cannot be read: ELOOP.* → let the user/)
  )
})

t.test(
  'only code that reads a setting needs it: no comment, no text, and not what is asked for with in',
  async t => {
    const rest = `, checkBack: () => ({ transport: 'http', request: () => {
    const form = { headers: { accept: '*/*', path: "//" } } // was env.OLD_URL
    const slash = /['"\`/*]/.test('a') // as env.OLDER_URL
    /* env.OLDEST_URL */
    if (!slash) throw new Error('env.TOLD is not set') // it's env.NONE
    const base = 'MAYBE_URL' in env ? env.MAYBE_URL : \`https://x.example/\${env.IN_TEMPLATE}/\${\`a//\${1}\`}\` + env.AFTER
    if (!base) throw new Error(\`set env.TOLD_TOO, not \${env.IN_TEXT}\`)
    const other = { accept: '*/*', base: env['NAMED_URL'] }
    return { url: base, ...form, ...other }
  } })`
    const dir = folder(t, { 'a.mjs': handler('a', `w: { ${http} }`, rest) })
    t.same(
      (await problemsOf(dir)).map(text => /it needs (\w+), which/.exec(text)?.[1] ?? text),
      ['IN_TEMPLATE', 'AFTER', 'IN_TEXT', 'NAMED_URL']
    )
  }
)

t.test(
  'the version of a handler changes with its file, its helpers and its settings, but not with a secret',
  async t => {
    const reads = 'url: url`${env.W_URL}/x`, headers: { authorization: env.W_TOKEN }, body: raw'
    const files = {
      'a.js': handler('a', `w: { transport: 'http', request: ({ raw }) => ({ ${reads} }) }`),
      'b.js': handler('b', `v: { ${http} }`),
      '_helper.js': 'export const x = 1'
    }
    const env = { W_URL: 'https://a.example', W_TOKEN: 'one' }
    const versions = async (changed: Partial<typeof files>, changedEnv: Partial<typeof env> = {}) => {
      const { handlers } = await load(folder(t, { ...files, ...changed }), { ...env, ...changedEnv })
      return ['a', 'b'].map(code => handlers.get(code)?.downstreams[0]?.handlerVersion)
    }
    const [a, b] = await versions({})
    t.same(await versions({}), [a, b], 'the folder does not count')
    t.same(await versions({}, { W_TOKEN: 'two' }), [a, b])
    const [otherUrl, same] = await versions({}, { W_URL: 'https://b.example' })
    t.not(otherUrl, a)
    t.equal(same, b, 'another handler does not read it')
    const [sameFile, otherFile] = await versions({ 'b.js': `${files['b.js']} // changed` })
    t.equal(sameFile, a)
    t.not(otherFile, b)
    const helped = await versions({ '_helper.js': 'export const x = 2' })
    t.not(helped[0], a)
    t.not(helped[1], b)
  }
)
