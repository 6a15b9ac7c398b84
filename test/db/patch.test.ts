import { execFile } from 'node:child_process'
import { cpSync, existsSync } from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import postgres from 'postgres'
import t from 'tap'
import { emptyDb } from '../support/postgres.ts'
import { folder } from '../support/service.ts'

t.setTimeout(2_400_000)

t.test('every backend is killed under load, again and again, and the process lives', async t => {
  const url = await emptyDb(t)
  const sql = postgres(url, { max: 8, onnotice: () => {}, backoff: () => 0.01 })
  const killer = postgres(url, { max: 1, onnotice: () => {} })
  await sql`create table pair (n int, half int)`

  let n = 0
  let broken = 0
  const until = Date.now() + 1_500
  const inTransactions = async () => {
    while (Date.now() < until) {
      const mine = ++n
      await sql
        .begin(async tx => {
          await tx`insert into pair values (${mine}, 1)`
          await tx`select pg_sleep(0.005)`
          // Real code also does other work than SQL. It does not notice here that the connection is lost.
          await new Promise(resolve => setImmediate(resolve))
          await tx`insert into pair values (${mine}, 2)`.catch(() => tx`insert into pair values (${mine}, 2)`)
        })
        .catch(() => {
          broken++
        })
    }
  }
  const plain = async () => {
    while (Date.now() < until) {
      await sql`select ${++n}::int as n, pg_sleep(0.001)`.catch(() => {
        broken++
      })
    }
  }
  const kill = async () => {
    while (Date.now() < until) {
      await killer`
        select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()`
      await new Promise(resolve => setTimeout(resolve, 40))
    }
  }
  const settled = Promise.all([
    ...Array.from({ length: 6 }, inTransactions),
    ...Array.from({ length: 6 }, plain),
    kill()
  ]).then(() => 'settled')
  t.equal(await Promise.race([settled, timeout(60_000)]), 'settled', 'no statement waits for ever')
  t.ok(broken > 0, 'connections really were lost')

  const after = Promise.all(
    Array.from({ length: 30 }, async (_, i) => (await sql`select ${i}::int as i`)[0]?.['i'])
  )
  t.same(
    await Promise.race([after, timeout(60_000)]),
    Array.from({ length: 30 }, (_, i) => i),
    'each seat of the pool works'
  )
  const torn = await sql`select n from pair group by n having count(*) <> 2`
  t.same([...torn], [], 'nothing of a lost transaction ran outside of it')
  await sql.end({ timeout: 1 })
  await killer.end({ timeout: 1 })
})

t.test('after an error half-way through the rows the next result is whole', async t => {
  const sql = postgres(await emptyDb(t), { max: 1, onnotice: () => {} })
  await t.rejects(sql`select 100 / (5 - i) as n from generate_series(1, 9) as i`, { code: '22012' })
  const rows = await sql`select i from generate_series(1, 2) as i`
  t.same([...rows], [{ i: 1 }, { i: 2 }])
  t.equal(rows.length, 2)
  await sql.end({ timeout: 1 })
})

t.test('a notice that is taken for an error fails its own statement, and none beside it', async t => {
  const onnotice = ({ message }: postgres.Notice) =>
    message === 'unclear' ? new Error(`seen: ${message}`) : undefined
  const sql = postgres(await emptyDb(t), { max: 1, onnotice })
  await sql`create table note (n int)`
  const warn = (message: string) =>
    sql.unsafe(`do $$ begin insert into note values (1); raise warning '${message}'; end $$`)
  const all = await Promise.allSettled([
    sql`select 1 as n`,
    warn('unclear'),
    warn('clear'),
    sql`select 2 as n`
  ])
  t.match(all, [
    { status: 'fulfilled' },
    { status: 'rejected', reason: { message: 'seen: unclear' } },
    { status: 'fulfilled' },
    { status: 'fulfilled', value: [{ n: 2 }] }
  ])
  t.equal((await sql`select from note`).length, 2, 'the server has done both')
  await sql.end({ timeout: 1 })
})

t.test('a proxy that accepts and hangs up is heard of at once', async t => {
  let connections = 0
  const proxy = net.createServer(socket => {
    connections++
    socket.on('error', () => {})
    socket.end()
  })
  await new Promise<void>(resolve => proxy.listen(0, '127.0.0.1', resolve))
  const { port } = proxy.address() as net.AddressInfo
  const sql = postgres(`postgres://x:x@127.0.0.1:${port}/x`, { max: 1 })
  const answer = sql`select 1`.then(
    () => 'rows',
    (err: { code: string }) => err.code
  )
  t.equal(await Promise.race([answer, timeout(60_000)]), 'CONNECTION_CLOSED')
  t.ok(connections < 5, 'without hammering it')
  await sql.end({ timeout: 1 })
  proxy.close()
})

t.test('a settled query leaves the memory with the next collection of young objects', async t => {
  const program = `
    import postgres from 'postgres'
    import { getHeapSpaceStatistics } from 'node:v8'
    const old = () => getHeapSpaceStatistics().find(it => it.space_name === 'old_space').space_used_size
    const sql = postgres(process.argv[1], { max: 1, fetch_types: false })
    const ask = async n => { for (let i = 0; i < n; i++) await sql\`select \${String(i).repeat(1000)} as text\` }
    const collect = () => { for (let i = 0; i < 3; i++) gc({ type: 'minor' }) }
    await ask(500)
    gc()
    const before = old()
    await ask(1000)
    collect()
    console.log(old() - before)
    await sql.end()`
  // The young generation has room for all queries. A query in the old space got there by a reference, not by its age.
  const flags = ['--expose-gc', '--max-semi-space-size=64', '--min-semi-space-size=64', '--input-type=module']
  const { stdout } = await promisify(execFile)('node', [...flags, '-e', program, await emptyDb(t)])
  t.match(stdout, /^-?\d+\n$/)
  t.ok(Number(stdout) < 500_000, `${stdout.trim()} bytes of 1,000 queries of 4 kB are old`)
})

async function timeout(ms: number): Promise<string> {
  return await new Promise(resolve => setTimeout(resolve, ms, 'timeout').unref())
}

t.test('without the patch nothing opens a database: every program says so, and what mends it', async t => {
  // The package without the patch, as npm leaves it with --ignore-scripts.
  const root = path.resolve(import.meta.dirname, '../../..')
  const dir = folder(t)
  for (const name of ['patches', 'node_modules/postgres', 'package.json'])
    cpSync(path.join(root, name), path.join(dir, name), { recursive: true })
  const run = promisify(execFile)
  await run('node', [path.join(root, 'node_modules/patch-package/index.js'), '--reverse'], { cwd: dir })
  const bare = pathToFileURL(path.join(dir, 'node_modules/postgres/src/index.js')).href
  const hooks = `export const resolve = (name, context, next) =>
    name === 'postgres' ? { url: '${bare}', shortCircuit: true } : next(name, context)`
  const instead = `import { register } from 'node:module'
    register('data:text/javascript,${encodeURIComponent(hooks).replaceAll("'", '%27')}')`
  const program = async (name: string, args: string[], env: Record<string, string>) => {
    const ended = await run(
      'node',
      [
        '--import',
        `data:text/javascript,${encodeURIComponent(instead)}`,
        path.join(root, 'dist/src/cli/ackbox.js'),
        name,
        ...args
      ],
      { env: { PATH: process.env['PATH'], DATA_DIR: path.join(dir, 'data'), SECRET: 'a'.repeat(40), ...env } }
    ).catch((err: unknown) => err as { stdout: string; stderr: string; code: number })
    return { code: 0, ...ended }
  }
  const external = { DATABASE_URL: await emptyDb(t) }
  const programs: [name: string, args: string[], env: Record<string, string>][] = [
    ['start', [], { PORT: '0' }],
    ['start', [], { PORT: '0', ...external }],
    ['migrate', [], external],
    ['key', ['list'], {}],
    ['key', ['list'], external],
    ['doctor', [], {}],
    ['doctor', [], external]
  ]
  for (const [name, args, env] of programs) {
    const { code, stdout, stderr } = await program(name, args, env)
    t.equal(code, 1, name)
    t.match(stdout + stderr, /lacks the patch of Ackbox.*--ignore-scripts.*`npx patch-package`/, name)
    t.notMatch(stdout + stderr, /\n +at /, 'and not where in the code')
  }
  t.notOk(existsSync(path.join(dir, 'data')), 'no embedded PostgreSQL was even begun')
})
