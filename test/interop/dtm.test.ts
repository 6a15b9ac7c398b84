// The protocol of DTM between DTM's own Python client, with its barrier on a real MariaDB, and whole processes of Ackbox.
import { execFile, spawn, spawnSync } from 'node:child_process'
import { existsSync, rmSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import { dtmTaskNo } from '../../src/handler/dtm.ts'
import { testMariadb, type TestMariadb } from '../support/mariadb.ts'
import { without } from '../support/program.ts'
import { call, settled, start, type Process } from '../support/service.ts'
import { stage, type Stage } from '../support/stage.ts'
import { until } from '../support/until.ts'
import { cache } from './server.ts'

const folder = resolve('test/interop/dtm')
const missing = without('python3', 'mariadbd')

t.setTimeout(2_400_000)

/** The python with the client, which is installed once. An incomplete installation is repeated. */
function python(): string {
  const home = join(cache, 'dtmcli')
  const [ready, wanted] = [join(home, 'requirements.txt'), join(folder, 'requirements.txt')]
  const found = join(home, 'bin', 'python')
  if (existsSync(ready) && spawnSync('cmp', ['-s', ready, wanted]).status === 0) return found
  rmSync(home, { recursive: true, force: true })
  const steps: [string, string[]][] = [
    ['python3', ['-m', 'venv', home]],
    [join(home, 'bin', 'pip'), ['install', '--quiet', '--disable-pip-version-check', '-r', wanted]],
    ['cp', [wanted, ready]]
  ]
  for (const [command, args] of steps) {
    const { status } = spawnSync(command, args, { stdio: ['ignore', 'inherit', 'inherit'] })
    if (status !== 0) throw new Error(`${command} ${args.join(' ')} ended with ${status}`)
  }
  return found
}

const tables = `
create database dtm_barrier;
create table dtm_barrier.barrier (
  id bigint primary key auto_increment, trans_type varchar(45) default '', gid varchar(128) default '',
  branch_id varchar(128) default '', op varchar(45) default '', barrier_id varchar(45) default '',
  reason varchar(45) default '', create_time datetime default now(), update_time datetime default now(),
  key (create_time), key (update_time), unique key (gid, branch_id, op, barrier_id)
);
create table account (id varchar(32) primary key, cents bigint not null);
insert into account values ('alice', 1000), ('bob', 0), ('carol', 0);`

interface Order {
  gid?: string
  ends?: 'refused' | 'error'
  dies?: string
  only?: 'submit' | 'prepare'
  options?: object
}

interface Paid {
  gid: string
  /** The end of the client: its exit code, its signal, and the last line of its output. */
  code: number | null
  signal: string | null
  error: string
}

interface World {
  on: Stage
  ackbox: Process
  mariadb: TestMariadb
  env: Record<string, string>
  pay(order?: Order): Promise<Paid>
  accounts(): Promise<Record<string, number>>
}

async function world(t: Test, more: Record<string, string> = {}): Promise<World> {
  const program = python()
  const mariadb = await testMariadb(t)
  if (!mariadb) throw new Error('no MariaDB')
  await mariadb.pool.query(tables)
  const on = await stage(t)
  if (!on) throw new Error('no stage')
  const shop = await shopOf(t, program, new URL(mariadb.url).port)
  const env: Record<string, string> = {
    ...on.env,
    DTM: 'on',
    DTM_TARGETS: `shop=${shop}`,
    EGRESS_ALLOW: `${on.env['EGRESS_ALLOW']},${new URL(shop).host}`,
    PORT: String(await freePort())
  }
  const ackbox = await start(t, { ...env, ...more })
  return {
    on,
    ackbox,
    mariadb,
    env,
    async pay(order = {}) {
      const said = {
        dtm: `${ackbox.url}/api/dtmsvr`,
        shop,
        port: Number(new URL(mariadb.url).port),
        ...order
      }
      const run = promisify(execFile)(program, [join(folder, 'pay.py'), JSON.stringify(said)])
      const { stdout, stderr, ...exit } = await run.then(
        done => ({ ...done, code: 0, signal: null }),
        (err: { stdout: string; stderr: string; code: number | null; signal: string | null }) => err
      )
      const gid = /^gid (\S+)$/m.exec(stdout)?.[1] ?? ''
      return { gid, code: exit.code, signal: exit.signal, error: stderr.trim().split('\n').at(-1) ?? '' }
    },
    async accounts() {
      const [rows] = await mariadb.pool.query('select id, cents from account')
      return Object.fromEntries((rows as { id: string; cents: number }[]).map(row => [row.id, row.cents]))
    }
  }
}

/** Starts the shop. Returns its URL. */
async function shopOf(t: Test, program: string, port: string): Promise<string> {
  const child = spawn(program, [join(folder, 'shop.py'), port], { stdio: ['ignore', 'ignore', 'pipe'] })
  const gone = new Promise(resolve => child.once('exit', resolve))
  t.teardown(async () => {
    child.kill('SIGKILL')
    await gone
  })
  // Its output is read until it ends: a full pipe would block it.
  let output = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    output += text
  })
  await until('the shop listens', () => /^listening (\d+)$/m.test(output))
  return `http://127.0.0.1:${/^listening (\d+)$/m.exec(output)?.[1] ?? ''}`
}

/** Waits until all steps of a message have ended, and returns their statuses. Empty for a message that was never prepared. */
async function ended({ url }: Pick<Process, 'url'>, gid: string): Promise<unknown[]> {
  await until(`${gid} has ended`, async () => {
    const { status, body } = await call(`${url}/tasks/${dtmTaskNo(gid, '01')}`)
    return status === 404 || body?.['status'] !== 'PREPARED'
  })
  const { body } = await call(`${url}/tasks?bizType=dtm&bizKey=${gid}`)
  const tasks = (body?.['tasks'] ?? []) as { taskNo: string }[]
  const all = await Promise.all(tasks.map(({ taskNo }) => settled(url, taskNo)))
  return all.map(one => one.body?.['status'])
}

const untouched = { alice: 1000, bob: 0, carol: 0 }
const paid = { alice: 998, bob: 1, carol: 1 }

t.test('submit, and do_and_submit_db that commits, refuses or fails', { skip: missing }, async t => {
  const { ackbox, on, pay, accounts } = await world(t)
  await t.test('submit alone', async t => {
    const { gid, code } = await pay({ only: 'submit' })
    t.equal(code, 0)
    t.same(await ended(ackbox, gid), ['HANDLED', 'HANDLED'])
    t.same(await accounts(), { alice: 1000, bob: 1, carol: 1 })
    t.equal((await pay({ only: 'submit', gid })).code, 0, 'again is 200')
    t.same(await ended(ackbox, gid), ['HANDLED', 'HANDLED'])
    const sent =
      await on.sql`select d.attempt from delivery d join task t on t.id = d.task_id where t.biz_key = ${gid}`
    t.same(
      sent.map(row => row['attempt'] as number),
      [1, 1],
      'and once'
    )
  })
  await t.test('committed', async t => {
    const { gid, code } = await pay()
    t.equal(code, 0)
    t.same(await ended(ackbox, gid), ['HANDLED', 'HANDLED'])
    t.same(await accounts(), { alice: 998, bob: 2, carol: 2 })
    t.match(await pay({ gid, only: 'prepare' }), { code: 1, error: /FAILURE/ }, 'prepared again: too late')
  })
  for (const ends of ['refused', 'error'] as const)
    await t.test(ends, async t => {
      const { gid, code } = await pay({ ends })
      t.equal(code, 1, 'the client hears of its own error')
      t.same(await ended(ackbox, gid), ['CANCELLED'])
      t.same(await accounts(), { alice: 998, bob: 2, carol: 2 }, 'and nobody was paid')
      t.match(
        await pay({ gid, only: 'submit' }),
        { code: 1, error: /FAILURE/ },
        'submitted after all: too late'
      )
    })
  await t.test('wait_result', async t => {
    const { gid, code } = await pay({ options: { wait_result: true } })
    t.equal(code, 0)
    t.match(await call(`${ackbox.url}/tasks/${dtmTaskNo(gid, '02')}`), { body: { status: 'HANDLED' } })
  })
})

t.test('a client that dies between any two steps: paid by all, or by none', { skip: missing }, async t => {
  const { ackbox, pay, accounts } = await world(t)
  const before = ['before prepare', 'after prepare', 'before work', 'after work', 'before commit']
  let rounds = 0
  for (const dies of [...before, 'after commit', 'before submit', 'after submit']) {
    const { gid, signal } = await pay({ dies, options: { timeout_to_fail: 1 } })
    t.equal(signal, 'SIGKILL', dies)
    const did = !before.includes(dies)
    if (did) rounds++
    t.same(
      await ended(ackbox, gid),
      dies === 'before prepare' ? [] : did ? ['HANDLED', 'HANDLED'] : ['CANCELLED'],
      dies
    )
    t.same(await accounts(), { alice: 1000 - 2 * rounds, bob: rounds, carol: rounds }, dies)
  }
})

t.test('Ackbox that dies around a submit or a check: paid by all, or by none', { skip: missing }, async t => {
  for (const [moment, order] of [
    // A submit first checks whether the message exists, by an insert that has no effect in that case.
    ['accept.before_commit=kill#1', {}],
    ['accept.before_commit=kill#2', {}],
    ['accept.after_commit=kill#2', {}],
    ['check.after_answer=kill#1', { dies: 'after commit' }],
    ['check.after_answer=kill#1', { dies: 'after work' }]
  ] as const) {
    const { ackbox, env, pay, accounts } = await world(t, { FAILPOINTS: moment })
    const { gid, code, signal } = await pay({ ...order, options: { timeout_to_fail: 1 } })
    if ('dies' in order) t.equal(signal, 'SIGKILL')
    else t.equal(code, 1, 'the client does not know how it ended')
    t.match(await ackbox.exited, { signal: 'SIGKILL' }, moment)
    const next = await start(t, env)
    const isPaid = !('dies' in order) || order.dies === 'after commit'
    t.same(await ended(next, gid), isPaid ? ['HANDLED', 'HANDLED'] : ['CANCELLED'], moment)
    t.same(await accounts(), isPaid ? paid : untouched)
    t.equal((await next.kill('SIGTERM')).code, 0)
  }
})
