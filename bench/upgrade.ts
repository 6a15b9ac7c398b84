// npm run bench -- upgrade: the migrations of an upgrade, on full tables. Which tables are locked, and for how long?
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { migrate } from '../src/db/migrate.ts'
import { openDb, type Sql } from '../src/db/pool.ts'
import { fillEnded } from './fill.ts'
import { onGround } from './ground.ts'
import { asked, flag, text, whole } from './options.ts'
import { round } from './report.ts'

const help = `npm run bench -- upgrade [options]

Makes the tables of an older version, fills them with ended tasks, and runs the newer migrations. Reports how long each
table was locked against reads and writes. Progress goes to stderr, the report to stdout as one line of JSON.

  --tasks N   ended tasks, each with its delivery and its attempt        (1000000)
  --from N    the number of migrations of the older version              (5: all before 0005)
  --quick     a tiny run that shows that it works
  --help`

const source = 'src/db/migrations'

interface Journal {
  entries: { tag: string }[]
}

export async function main(args: string[]): Promise<void> {
  const values = asked(args, { tasks: text, from: text, quick: flag }, help)
  const { quick } = values
  const tasks = whole('--tasks', values.tasks ?? (quick ? '5000' : '1000000'))
  const from = whole('--from', values.from ?? '5')
  await onGround(quick, async (ground, signal) => {
    const url = await ground.database('bench_upgrade')
    await migrateFirst(url, from)
    await fillEnded({ url, run: 'old', count: tasks, signal })
    const sql = openDb(url, { max: 1 })
    const over = new AbortController()
    try {
      const watching = lockedSince(sql, over.signal)
      const began = performance.now()
      const applied = await migrate(url)
      const ended = performance.now()
      over.abort()
      const lockedSeconds = [...(await watching)].map(
        ([table, since]) => [table, round((ended - since) / 1000, 1)] as const
      )
      const seconds = round((ended - began) / 1000, 1)
      console.log(
        JSON.stringify({
          bench: 'upgrade',
          tasks,
          applied,
          seconds,
          lockedSeconds: Object.fromEntries(lockedSeconds)
        })
      )
    } finally {
      over.abort()
      await sql.end({ timeout: 5 })
    }
  })
}

/** Runs the first `count` migrations, as an older version had them. */
async function migrateFirst(url: string, count: number): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'ackbox-bench-migrations-'))
  try {
    cpSync(source, folder, { recursive: true })
    const file = join(folder, 'meta/_journal.json')
    const journal = JSON.parse(readFileSync(file, 'utf8')) as Journal
    writeFileSync(file, JSON.stringify({ ...journal, entries: journal.entries.slice(0, count) }))
    await migrate(url, undefined, folder)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** When each table was first seen locked exclusively. All migrations are one transaction: the lock is held to its end. */
async function lockedSince(sql: Sql, signal: AbortSignal): Promise<Map<string, number>> {
  const since = new Map<string, number>()
  while (!signal.aborted) {
    const rows = await sql<{ name: string }[]>`
      select c.relname as name from pg_locks l join pg_class c on c.oid = l.relation
      where l.granted and l.mode = 'AccessExclusiveLock' and c.relkind = 'r' and c.relnamespace = 'public'::regnamespace
        and l.database = (select oid from pg_database where datname = current_database())`
    for (const { name } of rows) if (!since.has(name)) since.set(name, performance.now())
    await sleep(20, undefined, { signal }).catch(() => {})
  }
  return since
}
