// Takes long: npm run test:long.
import { execFile, spawn, spawnSync } from 'node:child_process'
import {
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync
} from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { packageRoot, version } from '../../src/runtime/package.ts'
import { folder, plainNode } from '../support/service.ts'

const program = path.resolve(import.meta.dirname, '../../src/cli/ackbox.js')

async function ackbox(
  args: string[],
  cwd?: string,
  env: Record<string, string> = {}
): Promise<{ code: number; out: string; err: string }> {
  return await new Promise(resolve => {
    const child = execFile(
      plainNode[0],
      [...plainNode.slice(1), program, ...args],
      { env: { PATH: process.env['PATH'], ...env }, ...(cwd === undefined ? {} : { cwd }) },
      (_error, out, err) => resolve({ code: child.exitCode ?? -1, out, err })
    )
  })
}

t.test('a command or an option that is not one is answered with what there is', async t => {
  t.match(await ackbox(['strat']), {
    code: 1,
    err: 'Unknown command: strat. Did you mean start?\nackbox --help lists the commands\n'
  })
  t.match(await ackbox(['constructor']), { code: 1, err: /Unknown command: constructor/ })
  t.match(await ackbox(['migrate', '--now']), {
    code: 1,
    err: /^Unknown option '--now'\nnpm run migrate -- --help shows/
  })
  t.match(await ackbox([]), { code: 0, out: /start +runs the service/ })
  t.match(await ackbox(['--version']), { code: 0, out: `${version}\n` })
})

t.test('every command answers a slip with two lines: what is wrong, and where its help is', async t => {
  const listed = [...(await ackbox([])).out.matchAll(/^ {2}([a-z]+) /gm)].map(([, name = '']) => name)
  for (const command of listed) {
    const { code, out, err } = await ackbox([command, '--colour'])
    t.match({ code, out }, { code: 1, out: '' }, command)
    t.match(err, /^Unknown option '--colour'\n.* --help shows the words and options\n$/, command)
  }
  const surplus = [
    ['init', 'a', 'b'],
    ['key', 'list', 'x'],
    ['tasks', 'show'],
    ['relay'],
    ['archive', 'find']
  ]
  for (const args of surplus)
    t.match((await ackbox(args)).err, /^[^\n]+\n[^\n]* --help shows [^\n]+\n$/, args.join(' '))
})

t.test('a verb that is missing or none is refused, with the one that was meant', async t => {
  for (const command of ['key', 'tasks', 'alarms', 'archive', 'outbox']) {
    t.match(await ackbox([command]), {
      code: 1,
      out: '',
      err: /^Missing command: \w.*\n.* --help shows the words and options\n$/
    })
    t.match(await ackbox([command, '--help']), { code: 0, out: `npm run ${command} -- `, err: '' })
  }
  t.match(await ackbox(['tasks', 'lst']), {
    code: 1,
    err: /^Unknown command: lst\. Did you mean list\?\nnpm run tasks -- --help shows/
  })
  t.match(await ackbox(['key', 'constructor']), { code: 1, err: /^Unknown command: constructor\.\n/ })
  t.match(await ackbox(['key', '']), { code: 1, err: /^Unknown command: \.\n/ })
})

t.test('the help of every command starts with a command line that works, and says how it exits', async t => {
  const listed = [...(await ackbox([])).out.matchAll(/^ {2}([a-z]+) /gm)].map(([, name = '']) => name)
  t.ok(listed.length > 10)
  for (const name of listed) {
    const { code, out } = await ackbox([name, '--help'])
    t.equal(code, 0, name)
    const line = name === 'init' ? `${program} init` : name === 'start' ? 'npm start' : `npm run ${name}`
    t.ok(out.startsWith(line), name)
    t.match(out, /^(?:.* )?Exit: 0 .* · 1 /m, name)
  }
})

t.test('generate is for a clone, and is not listed elsewhere', async t => {
  const installed = folder(t)
  cpSync(path.join(packageRoot, 'dist/src'), path.join(installed, 'dist/src'), { recursive: true })
  cpSync(path.join(packageRoot, 'package.json'), path.join(installed, 'package.json'))
  symlinkSync(path.join(packageRoot, 'node_modules'), path.join(installed, 'node_modules'))
  const program = path.join(installed, 'dist/src/cli/ackbox.js')
  const run = (...args: string[]) =>
    spawnSync(plainNode[0], [...plainNode.slice(1), program, ...args], { encoding: 'utf8' })
  t.match((await ackbox([])).out, /^ {2}generate /m)
  t.notMatch(run().stdout, 'generate')
  t.match(run('generate'), {
    status: 1,
    stdout: '',
    stderr: 'generate works only in a clone of Ackbox\n'
  })
})

t.test('a URL that is none is named with where it is from', async t => {
  const table = ['--from', 'postgres://a', '--table', 'a', '--columns', 'taskNo=a']
  const wrong: [said: string, env: Record<string, string>, ...args: string[]][] = [
    ['--to shop:80', {}, 'relay', '--from', 'postgres://a', '--to', 'shop:80'],
    ['--to shop', {}, 'import', ...table, '--to', 'shop'],
    ['ACKBOX_URL shop', { ACKBOX_URL: 'shop' }, 'relay', '--from', 'postgres://a'],
    ['ACKBOX_URL shop', { ACKBOX_URL: 'shop' }, 'tasks', 'list'],
    ['PORT: http://127.0.0.1:x', { PORT: 'x' }, 'tasks', 'list'],
    ['--url shop', { ACKBOX_URL: 'http://a' }, 'demo', '--url', 'shop']
  ]
  for (const [said, env, ...args] of wrong)
    t.match(
      await ackbox(args, undefined, env),
      { code: 1, out: '', err: `${said} is not an http or https URL\n` },
      args.join(' ')
    )
  for (const args of [
    ['relay', '--from', 'postgres://a'],
    ['import', ...table]
  ])
    t.match(await ackbox(args), { code: 1, err: /^Missing option: --to http/ })
})

t.test('help of a command is the help of that command', async t => {
  t.match(await ackbox(['help', 'key']), { code: 0, out: /npm run key -- create NAME/, err: '' })
  t.match(await ackbox(['help', 'kye']), { code: 1, err: /Unknown command: kye\. Did you mean key\?/ })
})

t.test('a .env that cannot be read is no .env that is missing', async t => {
  const project = folder(t)
  mkdirSync(path.join(project, '.env'))
  for (const args of [['tasks', 'list'], ['migrate'], ['handlers'], ['key', 'list'], ['start']])
    t.match(
      await ackbox(args, project),
      { code: 1, err: /^ackbox: \.env cannot be read: EISDIR/ },
      args.join(' ')
    )
})

t.test(
  'the first variable of a .env with a byte order mark counts, and one in UTF-16 is refused',
  async t => {
    const project = folder(t)
    const file = path.join(project, '.env')
    const commands = [
      ['migrate'],
      ['start'],
      ['relay', 'postgres'],
      ['import'],
      ['handlers'],
      ['tasks', 'list']
    ]
    // Nobody listens at port 1: the command must try this database, not start one of its own.
    writeFileSync(file, '\uFEFFDATABASE_URL=postgres://ackbox:ackbox@127.0.0.1:1/ackbox\r\nSECRET=short\r\n')
    t.match(await ackbox(['migrate'], project), {
      code: 1,
      err: /PostgreSQL cannot be (?:used|reached).*127\.0\.0\.1:1/
    })
    t.match(await ackbox(['start'], project), { code: 1, err: /^ackbox: SECRET is too short/ })
    writeFileSync(file, 'PORT=3999\n\uFEFFSECRET=short\n')
    t.match(
      await ackbox(['start'], project),
      { err: /^ackbox: SECRET is too short/ },
      'two files, joined by cat'
    )
    for (const bytes of [
      Buffer.from('\uFEFFDATABASE_URL=postgres://b\n', 'utf16le'),
      Buffer.from('\uFEFFDATABASE_URL=postgres://b\n', 'utf16le').swap16(),
      Buffer.from('DATABASE_URL=postgres://b\n', 'utf16le'),
      Buffer.from('DATABASE_URL=postgres://b\n', 'utf16le').swap16()
    ]) {
      writeFileSync(file, bytes)
      for (const args of commands)
        t.match(
          await ackbox(args, project),
          { code: 1, err: /^ackbox: \.env is not UTF-8 \(it looks like UTF-16\): save it as UTF-8/ },
          args.join(' ')
        )
    }
    t.match(await ackbox(['init'], project), { code: 1, err: /\.env is not UTF-8/ }, 'no line is added to it')
    t.notOk(existsSync(path.join(project, '.ackbox')), 'no database of its own was started')
  }
)

t.test(
  'a variable with an invisible character in its name is refused, in the environment and in .env',
  async t => {
    const project = folder(t)
    for (const [character, code] of [
      ['\uFEFF', 'FEFF'],
      ['\u200B', '200B'],
      ['\u00A0', '00A0'],
      ['\u3000', '3000'],
      ['\u202A', '202A']
    ] as const) {
      const refusal = {
        code: 1,
        err: new RegExp(
          `^ackbox: The name of the environment variable DATABASE_URL contains the invisible character U\\+${code}:`
        )
      }
      t.match(await ackbox(['start'], project, { [`${character}DATABASE_URL`]: 'postgres://b' }), refusal)
      writeFileSync(path.join(project, '.env'), `PORT=3999\nDATABASE${character}_URL=postgres://b\n`)
      t.match(await ackbox(['start'], project), refusal)
      rmSync(path.join(project, '.env'))
    }
    t.notOk(existsSync(path.join(project, '.ackbox')), 'no database of its own was started')
  }
)

t.test('an option that is given twice, of which only the last would count, is refused', async t => {
  const twice: [option: string, ...args: string[]][] = [
    ['scopes', 'key', 'create', 'ok', '--scopes', 'tasks:read', '--scopes', 'tasks:write'],
    ['code', 'tasks', 'list', '--code', 'a', '--code', 'b'],
    ['to', 'relay', '--from', 'postgres://a', '--to', 'http://a', '--to', 'http://b'],
    ['where', 'import', '--where', 'a', '--where', 'b'],
    ['tasks', 'demo', '--tasks', '1', '--tasks', '2']
  ]
  for (const [option, ...args] of twice)
    t.match(await ackbox(args), { code: 1, out: '', err: `--${option} is given twice: give it once\n` })
})

t.test('words and options of other commands are refused', async t => {
  const refused: [said: string, ...args: string[]][] = [
    ['alarms list does not take x', 'alarms', 'list', 'x'],
    ['archive find does not take y', 'archive', 'find', 'x', 'y'],
    ['archive find does not take --id', 'archive', 'find', 'x', '--id', '1'],
    ['archive restore does not take --json', 'archive', 'restore', 'x', '--json'],
    ['--day must be like 2026-10-24', 'archive', 'find', 'x', '--day', '2026-13-45'],
    ['--day must be like 2026-10-24', 'archive', 'find', 'x', '--day', '2026-02-30'],
    ['relay --retry-rejected does not take --once', 'relay', '--once', '--retry-rejected'],
    ['relay --print-ddl does not take --from', 'relay', '--print-ddl', 'postgres', '--from', 'x'],
    ['relay --once does not take --listen', 'relay', '--once', '--listen', '1']
  ]
  for (const [said, ...args] of refused) {
    const { code, out, err } = await ackbox(args)
    t.match({ code, out, err: err.split('\n')[0] }, { code: 1, out: '', err: said }, args.join(' '))
  }
})

t.test('where no service was started yet, the commands say so and make nothing', async t => {
  const empty = folder(t)
  t.match(await ackbox(['doctor'], empty), { out: /no embedded database yet: `npm start` makes it/ })
  for (const args of [
    ['key', 'list'],
    ['key', 'secret', 'warehouse'],
    ['outbox', 'grant', 'shop']
  ])
    t.match(await ackbox(args, empty), {
      code: 1,
      out: '',
      err: /^ackbox: There is no (?:embedded database|secret) in .*\.ackbox yet: .*DATA_DIR.*(?:DATABASE_URL|SECRET)/
    })
  t.notOk(existsSync(path.join(empty, '.ackbox')))
})

t.test('files and settings of relay and import are looked at before a database is', async t => {
  const dir = folder(t)
  const from = ['--from', 'postgres://127.0.0.1:1/none', '--to', 'http://127.0.0.1:1']
  const table = ['--table', 'a', '--columns', 'taskNo=a,messageCode=b,messageBody=c']
  const wrong: [said: RegExp, ...args: string[]][] = [
    [/^--key-file cannot be read: ENOENT/, 'relay', ...from, '--key-file', '/nope'],
    [/^--key-file cannot be read: ENOENT/, 'import', ...from, ...table, '--key-file', '/nope'],
    [/^--rejected \/nope\/x cannot be written: ENOENT/, 'import', ...from, ...table, '--rejected', '/nope/x'],
    [/^--rejected \. cannot be written: it is a folder/, 'import', ...from, ...table, '--rejected', '.'],
    [
      /^--from has a % that is not percent-encoding: write it as %25\n/,
      'relay',
      ...from.with(1, 'postgres://u:%@a')
    ]
  ]
  for (const [err, ...args] of wrong)
    t.match(await ackbox(args, dir), { code: 1, out: '', err }, args.join(' '))
  writeFileSync(path.join(dir, '.env'), 'LOG_LEVEL=verbose\nACKBOX_URL=http://127.0.0.1:1\n')
  t.match(await ackbox(['relay', '--from', 'postgres://127.0.0.1:1/none'], dir), {
    code: 1,
    err: /^ackbox: LOG_LEVEL must be one of .* but is "verbose"\n$/
  })
})

t.test('init refuses what it would break, before it writes anything', async t => {
  const dir = folder(t)
  const project = (name: string, json: string): string => {
    mkdirSync(path.join(dir, name))
    writeFileSync(path.join(dir, name, 'package.json'), json)
    return name
  }
  writeFileSync(path.join(dir, 'afile'), '')
  writeFileSync(path.join(dir, project('b', '{}'), 'handlers'), '')
  const wrong: [said: RegExp, ...args: string[]][] = [
    [/afile is a file, and a folder is needed there/, 'afile'],
    [/handlers is a file, and a folder is needed there/, 'b'],
    [/package\.json cannot be read: /, project('c', '{')],
    [/package\.json must be a JSON object/, project('d', '[]')],
    [/package\.json: "scripts" must be a JSON object\n$/, project('e', '{"scripts":"x"}')],
    [/package\.json: "type" must be a string\n$/, project('g', '{"type":1}')],
    [/^init does not take y z\n/, 'x', 'y', 'z']
  ]
  for (const [err, ...args] of wrong) {
    t.match(await ackbox(['init', ...args], dir), { code: 1, out: '', err }, args.join(' '))
    t.notOk(existsSync(path.join(dir, args[0] ?? '', '.env')), 'nothing was written')
  }
  const bom = project('f', '\uFEFF{"name":"mine"}')
  t.match(await ackbox(['init', bom], dir), { code: 0, err: '' })
  t.match(await ackbox(['init', 'My Shop'], dir), { code: 0, err: '' })
  const nameOf = (name: string): unknown =>
    JSON.parse(readFileSync(path.join(dir, name, 'package.json'), 'utf8'))
  t.match(nameOf('f'), { name: 'mine' })
  t.match(nameOf('My Shop'), { name: 'my-shop' })
})

t.test('init completes a package.json and leaves all else as it is', async t => {
  const project = folder(t)
  const own = {
    name: 'shop',
    type: 'commonjs',
    scripts: { start: 'mine' },
    dependencies: { ackbox: 'file:x.tgz' }
  }
  writeFileSync(path.join(project, 'package.json'), JSON.stringify(own))
  writeFileSync(path.join(project, 'compose.yml'), '# mine')
  t.match(await ackbox(['init'], project), { code: 0, out: /compose\.yml exists, kept/ })
  t.equal(readFileSync(path.join(project, 'compose.yml'), 'utf8'), '# mine')
  const described = JSON.parse(readFileSync(path.join(project, 'package.json'), 'utf8')) as typeof own
  t.match(described, { ...own, scripts: { start: 'mine', dev: 'ackbox dev' } })
  t.ok(existsSync(path.join(project, 'handlers/hello.mts')), 'a module by its name, in a project of CommonJS')
  t.match(
    await ackbox(['handlers'], project),
    { code: 0, out: /hello\.mts +greeter/ },
    '.env names the folder'
  )
})

t.test('init in another folder says how the package gets there, and takes it from where it is', async t => {
  const dir = folder(t)
  const project = path.join(dir, 'shop')
  mkdirSync(path.join(project, 'node_modules'), { recursive: true })
  symlinkSync(packageRoot, path.join(project, 'node_modules/ackbox'))
  const installed = path.join(project, 'node_modules/ackbox/dist/src/cli/ackbox.js')
  const init = (...args: string[]): string =>
    spawnSync(process.execPath, [installed, 'init', ...args], { cwd: project, encoding: 'utf8' }).stdout
  const specIn = (name: string): unknown => {
    const text = readFileSync(path.join(dir, name, 'package.json'), 'utf8')
    return (JSON.parse(text) as { dependencies: Record<string, unknown> }).dependencies['ackbox']
  }

  writeFileSync(path.join(project, 'package.json'), '{"dependencies":{"ackbox":"file:../ackbox.tgz"}}')
  t.match(init('../other'), '\nNext:\n  cd ../other\n  npm install\n  npx ackbox dev ')
  t.equal(specIn('other'), `file:${dir}/ackbox.tgz`)
  t.match(init('part'), '\nNext:\n  cd part\n  npm install\n  npx ackbox dev ', 'TypeScript is missing')
  symlinkSync(
    path.join(packageRoot, 'node_modules/typescript'),
    path.join(project, 'node_modules/typescript')
  )
  t.match(init('part'), '\nNext:\n  cd part\n  npx ackbox dev ', 'npx finds both in the folder above')
  t.match(init(), '\nNext:\n  npx ackbox dev ')

  writeFileSync(path.join(project, 'package.json'), '{"devDependencies":{"ackbox":"^1.0.0"}}')
  init('../third')
  t.equal(specIn('third'), '^1.0.0')
})

t.test('init writes a .env that only its owner can read', async t => {
  const project = folder(t)
  t.equal((await ackbox(['init'], project)).code, 0)
  t.equal(statSync(path.join(project, '.env')).mode & 0o077, 0)
})

t.test('init adds the lines that a .env and a .gitignore lack, and changes none', async t => {
  const project = folder(t)
  const read = (name: string): string => readFileSync(path.join(project, name), 'utf8')
  writeFileSync(path.join(project, '.env'), 'PORT=3001')
  writeFileSync(path.join(project, '.gitignore'), '/node_modules/\n*.log\n')
  t.match(await ackbox(['init'], project), {
    code: 0,
    out: /\.env exists, added: HANDLERS_DIR=\.\/handlers\n[^]*\.gitignore exists, added: \.ackbox, \.env\n/
  })
  t.equal(read('.env'), 'PORT=3001\nHANDLERS_DIR=./handlers\n')
  t.equal(read('.gitignore'), '/node_modules/\n*.log\n.ackbox\n.env\n')
  t.match(await ackbox(['handlers'], project), { out: /hello\.ts +greeter/ }, 'the handlers that dev runs')
  t.match(await ackbox(['init'], project), { out: /\.gitignore exists, kept\n/ })
  t.equal(read('.gitignore'), '/node_modules/\n*.log\n.ackbox\n.env\n')

  writeFileSync(path.join(project, '.env'), 'HANDLERS_DIR=./mine\n')
  t.match(await ackbox(['init'], project), { code: 0, out: /\.env exists, kept: HANDLERS_DIR is \.\/mine\n/ })
  t.equal(read('.env'), 'HANDLERS_DIR=./mine\n')
})

t.test('init leaves a program of CommonJS running: its package.json gets no type', async t => {
  const project = folder(t)
  writeFileSync(path.join(project, 'package.json'), '{"name":"shop","main":"server.js"}')
  writeFileSync(path.join(project, 'server.js'), "require('node:fs')")
  t.match(await ackbox(['init'], project), { code: 0, err: '' })
  const described = JSON.parse(readFileSync(path.join(project, 'package.json'), 'utf8')) as object
  t.match(described, { name: 'shop', scripts: { dev: 'ackbox dev' } })
  t.notOk('type' in described)
  t.equal(spawnSync(process.execPath, ['server.js'], { cwd: project }).status, 0)
  t.match(await ackbox(['handlers'], project), {
    code: 0,
    err: /types .* not checked/,
    out: /hello\.mts +greeter/
  })

  const part = folder(t)
  writeFileSync(path.join(part, 'server.js'), "require('node:fs')")
  t.match(await ackbox(['init'], part), { code: 0, err: '' })
  t.equal(
    spawnSync(process.execPath, ['server.js'], { cwd: part }).status,
    0,
    'nor one without a package.json'
  )

  const empty = folder(t)
  writeFileSync(path.join(empty, 'package.json'), '{"dependencies":{"ackbox":"file:x.tgz"}}')
  writeFileSync(path.join(empty, 'package-lock.json'), '{}')
  mkdirSync(path.join(empty, 'node_modules'))
  t.match(await ackbox(['init'], empty), { code: 0 })
  t.match(JSON.parse(readFileSync(path.join(empty, 'package.json'), 'utf8')), { type: 'module' })
  t.ok(existsSync(path.join(empty, 'handlers/hello.ts')), 'what npm made of an empty folder is no program')
})

t.test('init makes a folder where there is none, and dev says where it looks for handlers', async t => {
  const project = path.join(folder(t), 'new')
  t.match(await ackbox(['init', project]), {
    code: 0,
    out: `\nNext:\n  cd ${project}\n  npm install\n  npx ackbox dev `
  })
  t.match(await ackbox(['init', "Joe's shop"], path.dirname(project)), { out: "\n  cd 'Joe'\\''s shop'\n" })
  t.match(await ackbox(['init', '.'], project), { out: '\nNext:\n  npm install\n  npx ackbox dev ' })
  t.match(JSON.parse(readFileSync(path.join(project, 'package.json'), 'utf8')), {
    name: 'new',
    type: 'module',
    dependencies: { ackbox: `file:${packageRoot}` }
  })
  t.match(await ackbox(['dev'], path.dirname(project)), {
    code: 1,
    err: /folder .*handlers does not exist: set HANDLERS_DIR/
  })
})

t.test('dev says that nothing more can be watched', async t => {
  const project = folder(t)
  await ackbox(['init', project])
  const full = path.join(project, 'full.mjs')
  writeFileSync(
    full,
    `import fs from 'node:fs'
     import { syncBuiltinESMExports } from 'node:module'
     fs.watch = () => { throw new Error('ENOSPC: System limit for number of file watchers reached') }
     syncBuiltinESMExports()`
  )
  const { status, stderr } = spawnSync(
    plainNode[0],
    [...plainNode.slice(1), '--import', full, program, 'dev'],
    { cwd: project, env: { PATH: process.env['PATH'] }, encoding: 'utf8' }
  )
  t.equal(status, 1)
  t.match(
    stderr,
    /^the folder .* cannot be watched: ENOSPC: System limit for number of file watchers reached\n$/
  )
})

t.test('dev restarts for a module of CommonJS', async t => {
  const project = folder(t)
  await ackbox(['init', project])
  // The invalid PORT ends the service at once, so dev waits for a change.
  const dev = spawn(plainNode[0], [...plainNode.slice(1), program, 'dev'], {
    cwd: project,
    env: { PATH: process.env['PATH'], PORT: 'none' },
    stdio: ['ignore', 'ignore', 'pipe']
  })
  let said = ''
  for await (const part of dev.stderr) {
    said += String(part)
    if (said.includes('restarting')) dev.kill('SIGTERM')
    else if (said.includes('waiting for a change'))
      writeFileSync(path.join(project, 'handlers/helper.cjs'), 'module.exports = 1')
  }
  t.match(said, 'ackbox: helper.cjs changed, restarting')
})

t.test('dev ends when the npx that started it is killed', async t => {
  const project = folder(t)
  await ackbox(['init', project])
  // The invalid PORT ends the service at once, so dev waits for a change.
  const shell = spawn('sh', ['-c', '"$0" "$@" & wait', ...plainNode, program, 'dev'], {
    cwd: project,
    env: { PATH: process.env['PATH'], npm_lifecycle_event: 'npx', PORT: 'none' },
    stdio: ['ignore', 'ignore', 'pipe']
  })
  let said = ''
  for await (const part of shell.stderr) {
    said += String(part)
    if (said.includes('waiting for a change')) shell.kill('SIGKILL')
  }
  t.match(said, /the service ended with 1/, 'and its end closed the pipe')
})
