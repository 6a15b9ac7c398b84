// Takes long: npm run test:long.
import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import postgres from 'postgres'
import t, { type Test } from 'tap'
import { dataFolder } from '../support/cluster.ts'
import { only } from '../support/only.ts'
import { plainNode, start } from '../support/service.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { until } from '../support/until.ts'
import { borrowEmbedded } from '../../src/embedded/borrow.ts'
import { embeddedSecret, startEmbedded } from '../../src/embedded/start.ts'
import { findRunning, isAlive } from '../../src/embedded/pidfile.ts'
import { removeLeftovers } from '../../src/embedded/initdb.ts'
import { runPostmaster, stopPostmaster } from '../../src/embedded/postmaster.ts'

interface Said {
  pid: number
  port: number
  url: string
  error: string
  drained: number
}

const holderFile = path.join(path.dirname(fileURLToPath(import.meta.url)), '../support/holder.js')
const program = path.join(path.dirname(holderFile), '../../src/cli/ackbox.js')
const pidFileModule = new URL('../../src/embedded/pidfile.js', import.meta.url).href
const root = process.getuid?.() === 0

t.setTimeout(2_400_000) // each first start creates a whole database, and the machine may be busy

/** A folder whose PostgreSQL recovers until it is promoted: a standby that answers nobody says what a server in recovery says. */
async function recovering(t: Test) {
  const dataDir = folder(t)
  const first = await runPostmaster({ dataDir })
  await stopPostmaster({ ...first, dataDir })
  const data = path.join(dataDir, 'postgres')
  fs.writeFileSync(path.join(data, 'standby.signal'), '')
  return { dataDir, data, settings: { hot_standby: 'off' } }
}

/** Waits until PostgreSQL has refused so many connections since it recovers. */
const refused = (dataDir: string, times: number): Promise<void> =>
  until(`${times} are refused`, () => {
    const log = fs.readFileSync(path.join(dataDir, 'postgres.log'), 'utf8')
    return (
      (log.match(/FATAL: {2}the database system is (?:not (?:yet )?accepting|starting)/g)?.length ?? 0) >=
      times
    )
  })

t.test('a recovery takes as long as it takes: a start waits for it, beyond its own limit', async t => {
  const { dataDir, data, settings } = await recovering(t)
  const startMs = 3_000
  let isReady = false
  const starting = runPostmaster({ dataDir, startMs, settings }).then(second => {
    isReady = true
    return second
  })
  starting.catch(() => {})
  await refused(dataDir, 1)
  // Beyond its limit. Nothing makes it ready before it is promoted.
  await new Promise(resolve => setTimeout(resolve, startMs + 500))
  t.notOk(isReady)
  fs.writeFileSync(path.join(data, 'promote'), '')
  const { pid } = findRunning(data) ?? { pid: 0 }
  process.kill(pid, 'SIGUSR1')
  const second = await starting
  t.equal(second.pid, pid)
  t.equal(fs.readFileSync(path.join(dataDir, 'port'), 'utf8'), `${second.port}\n`)
  await stopPostmaster({ ...second, dataDir })
})

t.test('a running server is found by another path of its data folder, and its pid file stays', async t => {
  const dataDir = folder(t)
  const { pid } = await runPostmaster({ dataDir })
  const link = path.join(folder(t), 'current')
  fs.symlinkSync(dataDir, link)
  const file = path.join(dataDir, 'postgres/postmaster.pid')
  const before = fs.readFileSync(file, 'utf8')
  t.match(findRunning(path.join(link, 'postgres')), { pid })
  t.equal(fs.readFileSync(file, 'utf8'), before)
  await stopPostmaster({ pid, dataDir })
})

t.test('a recovery that ends without a server is an error, and no second one begins', async t => {
  const { dataDir, data, settings } = await recovering(t)
  const starting = runPostmaster({ dataDir, settings })
  starting.catch(() => {})
  // The start asks again only after it has read the first refusal.
  await refused(dataDir, 2)
  const { pid } = findRunning(data) ?? { pid: 0 }
  process.kill(pid, 'SIGKILL')
  await t.rejects(starting, { message: /ended while it recovered: read .*postgres\.log/ })
})

t.test('a start that is told to end while PostgreSQL recovers ends it too', async t => {
  const { dataDir, data, settings } = await recovering(t)
  const stop = new AbortController()
  const starting = runPostmaster({ dataDir, settings, signal: stop.signal })
  starting.catch(() => {})
  await until('it runs', () => findRunning(data) !== undefined)
  const { pid } = findRunning(data) ?? { pid: 0 }
  stop.abort()
  await t.rejects(starting, { name: 'AbortError' })
  await until('nothing is left', () => !isAlive(pid))
})

t.test('the first start makes a database within seconds, the next one finds everything again', async t => {
  const dataDir = folder(t)
  const began = stopwatch(t)
  const first = await startEmbedded({ dataDir })
  t.ok(began() < 60_000, 'a disk that others keep busy takes most of it')
  await query(first.url, `create table note (text text); insert into note values ('kept')`)
  await first.stop()
  await first.stop()
  // The process is dead, but may still be in the process table.
  for (let i = 0; isAlive(first.pid) && i < 500; i++) await new Promise(resolve => setTimeout(resolve, 10))
  t.notOk(isAlive(first.pid))
  const second = await startEmbedded({ dataDir })
  t.match(await query(second.url, 'select text from note'), only({ text: 'kept' }))
  await second.stop()
  // Another program may take the port while it is free, but not three times in a row.
  const ports = [first.port, second.port]
  for (const _ of [1, 2, 3]) {
    const again = await startEmbedded({ dataDir })
    ports.push(again.port)
    await again.stop()
  }
  t.ok(
    ports.some((port, i) => port === ports[i - 1]),
    `on the same port while it is free: ${ports.join(', ')}`
  )
})

t.test('the password and the secret are random, made once, and readable by their owner alone', async t => {
  const dataDir = folder(t)
  const secret = embeddedSecret(dataDir)
  t.match(secret, /^[A-Za-z0-9_-]{43}$/)
  t.equal(embeddedSecret(dataDir), secret)
  t.not(embeddedSecret(folder(t)), secret)
  const embedded = await startEmbedded({ dataDir })
  await t.rejects(query(embedded.url.replace(/:[^:@]+@/, ':wrong@'), 'select 1'), { code: '28P01' })
  for (const file of ['password', 'secret', 'postgres.log']) {
    t.equal(fs.statSync(path.join(dataDir, file)).mode & 0o777, 0o600, file)
  }
  t.same(
    fs.readdirSync(dataDir).filter(name => name.includes('new')),
    [],
    'nothing is left of the making'
  )
  await embedded.stop()
})

t.test('after kill -9 the next start takes over the database that was left running', async t => {
  const dataDir = await dataFolder(t)
  const { child, said } = await holder(t, dataDir)
  child.kill('SIGKILL')
  await once(child, 'exit')
  t.ok(isAlive(said.pid), 'PostgreSQL outlived it')
  const next = await startEmbedded({ dataDir })
  t.equal(next.pid, said.pid)
  t.match(await query(next.url, 'select text from note'), only({ text: `from ${child.pid}` }))
  await next.stop()
  await t.rejects(query(said.url, 'select 1'), { code: 'ECONNREFUSED' }, 'and ends it in the end')
})

t.test('a command that Ctrl-C ends leaves no PostgreSQL behind', async t => {
  const dataDir = await dataFolder(t)
  const child = spawn(plainNode[0], [...plainNode.slice(1), program, 'key', 'list'], {
    env: { PATH: process.env['PATH'], DATA_DIR: dataDir },
    stdio: 'ignore'
  })
  const pidFile = path.join(dataDir, 'postgres/postmaster.pid')
  await until('PostgreSQL starts', () => fs.existsSync(pidFile))
  child.kill('SIGINT')
  t.same(await once(child, 'exit'), [130, null])
  t.notOk(fs.existsSync(pidFile), 'it ended, and in order')
})

t.test('a service that is stopped while its PostgreSQL starts leaves none behind', async t => {
  const dataDir = await dataFolder(t)
  const pidFile = path.join(dataDir, 'postgres/postmaster.pid')
  const child = spawn(plainNode[0], [...plainNode.slice(1), program, 'start'], {
    env: { PATH: process.env['PATH'], DATA_DIR: dataDir, PORT: '0' },
    stdio: ['ignore', 'pipe', 'pipe']
  })
  const said: Buffer[] = []
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => said.push(chunk))
  await until('PostgreSQL starts', () => fs.existsSync(pidFile))
  child.kill('SIGTERM')
  t.same(await once(child, 'close'), [0, null])
  t.notOk(fs.existsSync(pidFile), 'it ended, and in order')
  t.notMatch(Buffer.concat(said).toString(), /ackbox: |"ready"/)
})

t.test('a process without file descriptors does not take PostgreSQL for dead', t => {
  const script = `
    import fs from 'node:fs'
    const { isPostmaster } = await import(${JSON.stringify(pidFileModule)})
    try { for (;;) fs.openSync('/dev/null', 'r') } catch {}
    process.exit(isPostmaster(process.pid, '/nowhere') ? 7 : 1)`
  const limited = ['-c', 'ulimit -n 64; exec "$@"', 'sh', ...plainNode, '--input-type=module', '-e', script]
  const { status, stderr } = spawnSync('sh', limited, { encoding: 'utf8' })
  t.equal(status, 7, stderr)
  t.end()
})

t.test('a service whose PostgreSQL is killed ends, and says so', async t => {
  const service = await start(t, { DATA_DIR: await dataFolder(t), PORT: '0' })
  const pid = Number(/"pid":(\d+)/.exec(service.output())?.[1])
  process.kill(pid, 'SIGKILL')
  t.same(await service.exited, { code: 1, signal: null })
  t.match(service.output(), /^ackbox: something else has ended the embedded PostgreSQL/m)
})

t.test('what a first start that was killed left behind is removed', t => {
  const dataDir = folder(t)
  const [old, fresh] = ['postgres.new-old', 'postgres.new-fresh'].map(name => path.join(dataDir, name))
  for (const made of [old, fresh]) {
    fs.mkdirSync(path.join(made!, 'base'), { recursive: true })
    fs.writeFileSync(`${made}.password`, 'secret')
  }
  const hourAgo = Date.now() / 1_000 - 3_600
  for (const left of [old!, `${old}.password`]) fs.utimesSync(left, hourAgo, hourAgo)
  removeLeftovers(dataDir)
  t.same(fs.readdirSync(dataDir).toSorted(), ['postgres.new-fresh', 'postgres.new-fresh.password'])
  t.end()
})

t.test('after a kill -9 of everything what was committed is there', async t => {
  const dataDir = await dataFolder(t)
  const { child, said } = await holder(t, dataDir)
  child.kill('SIGKILL')
  process.kill(said.pid, 'SIGKILL')
  await once(child, 'exit')
  const next = await startEmbedded({ dataDir })
  t.not(next.pid, said.pid)
  t.match(await query(next.url, 'select text from note'), only({ text: `from ${child.pid}` }))
  await next.stop()
})

t.test('a second start on the same folder says who holds it, and the first one is unharmed', async t => {
  const dataDir = await dataFolder(t)
  const first = await holder(t, dataDir)
  const second = await holder(t, dataDir)
  t.equal(
    second.said.error,
    `DatabaseError: ${dataDir} is held by another Ackbox, pid ${first.child.pid} ` +
      `(its PostgreSQL: pid ${first.said.pid}, port ${first.said.port}). Stop that one first, or set DATA_DIR to another folder.`
  )
  await query(
    first.said.url,
    `select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'ackbox holder%'`
  )
  await new Promise(resolve => setTimeout(resolve, 500))
  await t.rejects(
    startEmbedded({ dataDir }),
    { message: /is held by/ },
    'also after its connection was killed'
  )
  t.match(await query(first.said.url, 'select count(*)::int as n from note'), [{ n: 1 }])
  first.child.kill('SIGINT')
  await once(first.child, 'exit')
})

t.test('of three first starts at once one gets it, the others hear so', async t => {
  const dataDir = folder(t)
  const all = await Promise.all([holder(t, dataDir), holder(t, dataDir), holder(t, dataDir)])
  const winners = all.filter(one => one.said.pid)
  t.equal(winners.length, 1)
  for (const { said } of all) if (!said.pid) t.match(said.error, /is held by another Ackbox/)
  winners[0]?.child.kill('SIGINT')
  if (winners[0]) await once(winners[0].child, 'exit')
})

t.test('Ctrl-C in the terminal reaches us, not PostgreSQL: we can still write what is in hand', async t => {
  const { child, said, lines } = await holder(t, await dataFolder(t))
  process.kill(-(child.pid ?? 0), 'SIGINT') // a terminal signals the whole group
  t.match(await lines(), { drained: 1 })
  const [code] = await once(child, 'exit')
  t.equal(code, 0)
  await t.rejects(query(said.url, 'select 1'), { code: 'ECONNREFUSED' })
})

t.test('a port that is taken by now: we take another', async t => {
  const dataDir = await dataFolder(t)
  const first = await startEmbedded({ dataDir })
  await first.stop()
  const thief = net.createServer().listen(first.port, '127.0.0.1')
  await once(thief, 'listening')
  const second = await startEmbedded({ dataDir })
  t.not(second.port, first.port)
  await second.stop()
  thief.close()
})

t.test('a stale postmaster.pid whose number is another program by now stops nobody', async t => {
  const dataDir = await dataFolder(t)
  const { child, said } = await holder(t, dataDir)
  child.kill('SIGKILL')
  process.kill(said.pid, 'SIGKILL')
  await once(child, 'exit')
  const pidFile = path.join(dataDir, 'postgres/postmaster.pid')
  const { uid, gid } = fs.statSync(pidFile)
  const other = spawn('sleep', ['60'], { uid, gid, stdio: 'ignore' })
  fs.writeFileSync(pidFile, fs.readFileSync(pidFile, 'utf8').replace(/^\d+/, String(other.pid)))
  const next = await startEmbedded({ dataDir })
  t.ok(isAlive(other.pid ?? 0), 'and it is not harmed')
  t.match(await query(next.url, 'select 1 as one'), [{ one: 1 }])
  await next.stop()
  other.kill('SIGKILL')
})

t.test('an empty postmaster.pid, as of a start at this moment or a crash long ago, stops nobody', async t => {
  const dataDir = await dataFolder(t)
  await (await startEmbedded({ dataDir })).stop()
  fs.writeFileSync(path.join(dataDir, 'postgres/postmaster.pid'), '')
  const next = await startEmbedded({ dataDir })
  t.match(await query(next.url, 'select 1 as one'), [{ one: 1 }])
  await next.stop()
})

t.test('trouble with the folder is one line that says what to do', async t => {
  const dataDir = await dataFolder(t)
  fs.writeFileSync(path.join(dataDir, 'file'), '')
  const refused = async (dir: string, message: RegExp) =>
    await t.rejects(startEmbedded({ dataDir: dir }), { name: 'DatabaseError', message })
  await refused(
    path.join(dataDir, 'file/inside'),
    /^Ackbox cannot write its data folder .*ENOTDIR.*set DATA_DIR/
  )

  const made = await startEmbedded({ dataDir })
  await made.stop()
  const password = path.join(dataDir, 'password')
  fs.renameSync(password, `${password}.lost`)
  await refused(dataDir, /password is missing.*Put it back, or set DATA_DIR/)
  fs.writeFileSync(password, 'wrong\n')
  await refused(dataDir, /refuses the password.*Put the right one back/)
  await stopLeft(dataDir)
  fs.renameSync(`${password}.lost`, password)
  const good = await startEmbedded({ dataDir })
  await good.stop()
})

t.test(
  'as root PostgreSQL runs as the owner of the folder that it finds',
  { skip: !root ? 'needs root' : isOpen() ? false : 'other users cannot read this folder' },
  async t => {
    const dataDir = folder(t)
    const nobody = 65_534
    fs.chownSync(dataDir, nobody, nobody)
    const first = await startEmbedded({ dataDir })
    t.equal(fs.statSync(`/proc/${first.pid}`).uid, nobody, 'whose account is known')
    await first.stop()
    // Like a volume from another machine: no user here has this number.
    const data = path.join(dataDir, 'postgres')
    spawnSync('chown', ['-R', '12345:12345', data])
    const second = await startEmbedded({ dataDir })
    t.equal(fs.statSync(`/proc/${second.pid}`).uid, 12_345)
    await second.stop()
    const { said } = await holder(t, dataDir, { uid: nobody, gid: nobody })
    t.match(said.error, /belongs to user 12345, but PostgreSQL would run as user 65534: .*chown/)
  }
)

t.test(
  'as root it also runs where the way is closed to everybody else, such as under /root',
  { skip: root && canRename() ? false : 'needs root, and a system with user namespaces' },
  async t => {
    const closed = folder(t)
    fs.chmodSync(closed, 0o700)
    const dataDir = path.join(closed, 'data')
    const first = await startEmbedded({ dataDir })
    await query(first.url, `create table note (text text); insert into note values ('kept')`)
    await first.stop()
    const second = await startEmbedded({ dataDir })
    t.match(await query(second.url, 'select text from note'), only({ text: 'kept' }))
    await second.stop()
  }
)

function canRename(): boolean {
  return spawnSync('unshare', ['--user', '--map-user=70', '--map-group=70', 'true']).status === 0
}

/** True if another user can read this project. */
function isOpen(): boolean {
  const other = { uid: 65_534, gid: 65_534, stdio: 'ignore' } as const
  return (
    spawnSync(
      plainNode[0],
      [...plainNode.slice(1), '-e', 'fs.accessSync(process.argv[1])', holderFile],
      other
    ).status === 0
  )
}

t.test(
  'a normal user runs it as oneself',
  {
    skip: !root
      ? 'this whole file ran as a normal user'
      : isOpen()
        ? false
        : 'other users cannot read this folder'
  },
  async t => {
    const dataDir = folder(t)
    const [uid, gid] = [65_534, 65_534]
    fs.chownSync(dataDir, uid, gid)
    const { child, said } = await holder(t, dataDir, { uid, gid })
    t.notOk(said.error)
    t.equal(fs.statSync(`/proc/${said.pid}`).uid, uid)
    child.kill('SIGINT')
    await once(child, 'exit')
    fs.chmodSync(dataDir, 0o500)
    const second = await holder(t, dataDir, { uid, gid })
    t.match(second.said.error, /cannot write its data folder .*EACCES/)
  }
)

t.test('a command leaves PostgreSQL to a service or another command, and the last one ends it', async t => {
  const dataDir = folder(t)
  const one = async (url: string) => t.match(await query(url, 'select 1 as one'), only({ one: 1 }))
  const [first, second] = [await borrowEmbedded(dataDir), await borrowEmbedded(dataDir)]
  const service = await startEmbedded({ dataDir })
  await first.leave()
  await second.leave()
  await one(service.url)
  await service.stop()

  const [third, fourth] = await Promise.all([borrowEmbedded(dataDir), borrowEmbedded(dataDir)])
  await third.leave()
  await one(fourth.url)
  await fourth.leave()
  await fourth.leave()
  t.notOk(findRunning(path.join(dataDir, 'postgres')))
})

/** A process that leads its own process group, like `npm start` in a shell. */
async function holder(t: Test, dataDir: string, user: { uid?: number; gid?: number } = {}) {
  const child: ChildProcess = spawn(plainNode[0], [...plainNode.slice(1), holderFile, dataDir], {
    ...user,
    detached: true,
    stdio: ['ignore', 'pipe', 'inherit']
  })
  const reader = createInterface({ input: child.stdout! })[Symbol.asyncIterator]()
  const lines = async () => JSON.parse((await reader.next()).value ?? '{}') as Said
  const said = await lines()
  t.teardown(async () => {
    child.kill('SIGKILL')
    if (said.pid) await stopPostmaster({ pid: said.pid, dataDir })
  })
  return { child, said, lines }
}

async function stopLeft(dataDir: string): Promise<void> {
  const pid = Number(fs.readFileSync(path.join(dataDir, 'postgres/postmaster.pid'), 'utf8').split('\n')[0])
  await stopPostmaster({ pid, dataDir })
}

function folder(t: Test): string {
  const dataDir = fs.mkdtempSync(path.join(os.tmpdir(), 'ackbox-embedded-'))
  fs.chmodSync(dataDir, 0o711)
  t.teardown(() => fs.rmSync(dataDir, { recursive: true, force: true }))
  return dataDir
}

async function query(url: string, text: string) {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  try {
    return [...(await sql.unsafe(text))]
  } finally {
    await sql.end()
  }
}
