import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import postgres from 'postgres'
import t, { type Test } from 'tap'
import { migrate, pendingMigrations } from '../../../src/db/migrate.ts'
import { emptyDb } from '../../support/postgres.ts'
import { plainNode } from '../../support/service.ts'
import { catalog } from './catalog.ts'
import { halt } from './halt.ts'
import { nextMigrations } from './next.ts'

t.setTimeout(2_400_000)

/** Statements before the transaction begins, and a few more; as many from its end on. */
const edges = 16

const program = path.resolve(import.meta.dirname, '../../../src/cli/ackbox.js')

async function described(url: string): Promise<string[]> {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  try {
    return await catalog(sql)
  } finally {
    await sql.end()
  }
}

async function twoAtOnce(numbers: readonly number[], work: (nth: number) => Promise<void>): Promise<void> {
  const left = [...numbers]
  const inTurn = async (): Promise<void> => {
    for (let nth = left.shift(); nth !== undefined; nth = left.shift()) await work(nth)
  }
  await Promise.all([inTurn(), inTurn()])
}

/** Statements of a whole run, from the first to the goodbye. */
async function statements(t: Test): Promise<number> {
  const way = await halt(t, await emptyDb(t), { nth: Infinity, swallow: false })
  await migrate(way.url)
  return way.passed()
}

t.test(
  'I40: npm run migrate, killed with SIGKILL before, in and after its transaction, is run again and ends the same',
  async t => {
    const clean = await emptyDb(t)
    await migrate(clean)
    const wanted = await described(clean)
    const all = await statements(t)
    t.ok(all > 15, `${all} statements`)
    // All migrations are one transaction, and PostgreSQL ends it wherever the process dies: every 32nd of its statements is
    // enough here. The next test goes through each of them.
    const at = Array.from({ length: all }, (_, i) => i + 1).filter(
      nth => nth <= edges || nth > all - edges || nth % 32 === 0
    )
    const killedAt = async (nth: number): Promise<void> => {
      const url = await emptyDb(t)
      const way = await halt(t, url, { nth, swallow: false })
      const child = spawn(plainNode[0], [...plainNode.slice(1), program, 'migrate'], {
        env: { PATH: process.env['PATH'], DATABASE_URL: way.url },
        stdio: 'ignore'
      })
      const gone = once(child, 'exit')
      await way.reached
      child.kill('SIGKILL')
      t.same(await gone, [null, 'SIGKILL'], `killed before statement ${nth}`)
      await migrate(url)
      t.same(await described(url), wanted, `run again after statement ${nth - 1}`)
    }
    await twoAtOnce(at, killedAt)
  }
)

// What PostgreSQL has before a statement is what it has after the one before, its answer lost.
t.test(
  'I40: a migration whose backend is killed, the answer to any statement lost, is run again and ends the same',
  async t => {
    const clean = await emptyDb(t)
    const from = nextMigrations(t)
    await migrate(clean)
    await migrate(clean, undefined, from)
    const wanted = await described(clean)
    const all = await statements(t)
    const cutAt = async (nth: number): Promise<void> => {
      const url = await emptyDb(t)
      const way = await halt(t, url, { nth, swallow: true })
      const failed = migrate(way.url, undefined, from).then(
        () => 'done',
        () => 'failed'
      )
      await way.reached
      const sql = postgres(url, { max: 1, onnotice: () => {} })
      await sql`
      select pg_terminate_backend(pid, 5000) from pg_stat_activity
      where datname = current_database() and application_name = 'ackbox migrate'`
      await sql.end()
      way.cut()
      t.equal(await failed, 'failed', `statement ${nth} was the last`)
      await Promise.all([migrate(url, undefined, from), migrate(url, undefined, from)])
      t.same(await described(url), wanted, `run again, twice at once, after statement ${nth}`)
    }
    await twoAtOnce(
      Array.from({ length: all }, (_, i) => i + 1),
      cutAt
    )
  }
)

t.test('five at once take the former tables to the next version once', async t => {
  const url = await emptyDb(t)
  await migrate(url)
  const from = nextMigrations(t)
  const applied = await Promise.all(Array.from({ length: 5 }, () => migrate(url, undefined, from)))
  t.same(
    applied.filter(names => names.length > 0),
    [['9999_next']]
  )
  t.same(await pendingMigrations(url), [])
})
