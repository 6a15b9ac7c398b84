// ARCHIVE: tasks that retention removes are kept in files and can be restored from them.
import { readdirSync, readFileSync, truncateSync } from 'node:fs'
import { open, type FileHandle } from 'node:fs/promises'
import path from 'node:path'
import { gunzipSync } from 'node:zlib'
import t from 'tap'
import { restoreTask, type Archive } from '../../src/db/archive.ts'
import type { Sql } from '../../src/db/pool.ts'
import { removeOld } from '../../src/db/retention.ts'
import { phaseOf, states } from '../../src/domain/transitions.ts'
import { findArchived, openArchive } from '../../src/service/archive.ts'
import { only } from '../support/only.ts'
import { testDb } from '../support/postgres.ts'
import { idOf, standing } from '../support/rows.ts'
import { folder } from '../support/service.ts'

const failed = { state: 'FAILED', attempt: 2, triesLeft: 0, lost: 0, roundFrom: 1 } as const

/** A reader that splits or unescapes too much would break this body. */
const body = '{"a":"\u2028\\u0000 \\\\ \\" 1\\n2 \u{1f600}","n":1.10,"n2":123456789012345678901234567890}'

async function old(sql: Sql, taskNo: string, days = 40): Promise<string> {
  const id = await standing(sql, failed, { taskNo, taskId: idOf(days) })
  const at = new Date(Date.now() - days * 86_400_000)
  await sql`update task set message_body = ${body}, extend = '{"x": 1.10}', created_at = ${at} where id = ${id}`
  await sql`
    insert into attempt (task_id, downstream, attempt, outcome, reason, status_code, answer, ms, node, started_at)
    values (${id}, 'warehouse', 1, 'failed', 'HTTP 503', 503, ${Buffer.from([0, 255, 10])}, 12, 'a', '2026-01-02 03:04:05.678901Z'),
      (${id}, 'warehouse', 2, 'failed', 'timeout', null, null, 10000, 'b', now())`
  await sql`
    insert into receipt (task_id, downstream, attempt, result, data, applied)
    values (${id}, 'warehouse', 1, 'PROCESSING', ${body}, false), (${id}, 'warehouse', 1, 'RETRY', null, true)`
  return id
}

/** All rows, without their numeric ids: restored rows get new ones. */
async function rowsOf(sql: Sql): Promise<unknown> {
  const all: unknown[] = []
  for (const table of ['task', 'delivery', 'attempt', 'receipt'])
    all.push(
      (await sql.unsafe(`select to_jsonb(r)::text as row from ${table} r`))
        .map(({ row }) => String(row).replace(/"id": \d+/, ''))
        .toSorted()
    )
  return all
}

t.test('a task is archived before it goes, and comes back value by value, for its days anew', async t => {
  const { sql } = await testDb(t)
  const dir = folder(t)
  await old(sql, 'order-1')
  await old(sql, 'order-2', 41)
  const before = await rowsOf(sql)
  t.match(await removeOld(sql, 30, 100, null, openArchive(dir, 'a')), { removed: 2 })
  t.same(await rowsOf(sql), [[], [], [], []])
  const day = new Date(Date.now() - 40 * 86_400_000).toISOString().slice(0, 10)
  const [first, ...more] = await findArchived(dir, 'order-1', { day })
  t.same(more, [])
  t.equal(first?.archived.task['message_body'], body)
  t.same(await findArchived(dir, 'order-2', { day }), [], 'that one was posted the day before')
  const [second] = await findArchived(dir, 'order-2')
  for (const one of [first, second])
    t.equal(await restoreTask(sql, one?.line ?? '', { name: 'cli:ann' }), true)
  t.same(await rowsOf(sql), before)
  t.equal(await restoreTask(sql, first?.line ?? '', { name: 'cli:ann' }), false, 'it is there already')
  t.same(await rowsOf(sql), before)
  t.match(
    await sql`select who, what, target from audit order by id`,
    only({ who: 'cli:ann', what: 'task.restored', target: 'order-1' }, { target: 'order-2' })
  )
  t.match(await removeOld(sql, 30, 100, null, openArchive(dir, 'a')), { removed: 0, next: null })
  t.match(await removeOld(sql, 0, 100, null), { removed: 2 }, 'its days are over')
})

t.test('a restored delivery is out of its order: its old place may be taken', async t => {
  const { sql } = await testDb(t)
  const dir = folder(t)
  const id = await old(sql, 'order-1')
  await sql`update delivery set ordering_key = 'k', position = -1 where task_id = ${id}`
  await removeOld(sql, 30, 100, null, openArchive(dir, 'a'))
  const taken = await standing(sql, failed, { taskNo: 'order-2' })
  await sql`update delivery set ordering_key = 'k', position = -1 where task_id = ${taken}`
  const [found] = await findArchived(dir, 'order-1')
  t.equal(await restoreTask(sql, found?.line ?? '', { name: 'cli' }), true)
  t.match(
    await sql`select ordering_key, position from delivery where task_id = ${id}`,
    only({ ordering_key: null, position: null })
  )
})

t.test('what changes while it is archived stays, and is archived again as it is then', async t => {
  const { sql } = await testDb(t)
  const dir = folder(t)
  const files = openArchive(dir, 'a')
  const [received, moved] = [await old(sql, 'received'), await old(sql, 'moved')]
  await old(sql, 'quiet')
  const late: Archive = {
    async append(records) {
      await files.append(records)
      await sql`
        insert into receipt (task_id, downstream, attempt, result, applied)
        values (${received}, 'warehouse', 2, 'HANDLED', false)`
      await sql`update delivery set reason = 'RECEIPT_TIMEOUT', updated_at = updated_at + interval '1 s' where task_id = ${moved}`
    }
  }
  t.match(await removeOld(sql, 30, 100, null, late), { removed: 1 })
  t.match(await removeOld(sql, 30, 100, null, files), { removed: 2 })
  const [one] = await findArchived(dir, 'received')
  t.equal(one?.archived.receipts.length, 3, 'the newer line counts')
  const [other] = await findArchived(dir, 'moved')
  t.equal(other?.archived.deliveries[0]?.['reason'], 'RECEIPT_TIMEOUT')
})

t.test('a task with a locked delivery stays, is not archived, and holds up no other', async t => {
  const { sql } = await testDb(t)
  const dir = folder(t)
  const locked = await old(sql, 'locked')
  await old(sql, 'free')
  await standing(sql, failed, { taskId: locked, downstream: 'points' })
  await sql`update delivery set updated_at = now() - interval '40 days'`
  await sql.begin(async held => {
    await held`select from delivery where task_id = ${locked} and downstream = 'points' for update`
    t.match(await removeOld(sql, 30, 100, null, openArchive(dir, 'a')), { removed: 1, next: null })
    t.match(await removeOld(sql, 30, 100, null, openArchive(dir, 'a')), { removed: 0, next: null })
  })
  t.equal((await findArchived(dir, 'free')).length, 1)
  t.same(await findArchived(dir, 'locked'), [])
  t.match(await removeOld(sql, 30, 100, null, openArchive(dir, 'a')), { removed: 1 })
  t.equal((await findArchived(dir, 'locked')).length, 1)
})

t.test('nothing is removed that could not be written', async t => {
  const { sql } = await testDb(t)
  await old(sql, 'order-1')
  const before = await rowsOf(sql)
  await t.rejects(removeOld(sql, 30, 100, null, openArchive('/dev/null/archive', 'a')), {
    code: /ENOTDIR|EEXIST/
  })
  t.same(await rowsOf(sql), before)
})

t.test('a task too large for one line, or that cannot be read, holds up no other', async t => {
  const { sql } = await testDb(t)
  const dir = folder(t)
  const [huge, broken] = [await old(sql, 'huge', 42), await old(sql, 'broken', 41)]
  for (const taskNo of ['first', 'second', 'third']) await old(sql, taskNo)
  const tried = async (id: string, n: number) => sql`
    insert into attempt (task_id, downstream, attempt, outcome, answer, ms, node, started_at)
    select ${id}, 'warehouse', n, 'failed', convert_to(repeat('x', 16384), 'UTF8'), 1, 'a', now()
    from generate_series(3, ${n + 2}::int) as n`
  await tried(huge, 8_300)
  await sql.unsafe(`
    create type odd as enum ('odd');
    create function odd_json(odd) returns json language plpgsql as $$ begin raise exception 'unreadable'; end $$;
    create cast (odd as json) with function odd_json(odd);
    alter table task add column odd odd`)
  await sql`update task set odd = 'odd' where id = ${broken}`
  const left: [string, string][] = []
  const archive = {
    ...openArchive(dir, 'a'),
    onLeft: (id: string, err: unknown) => left.push([id, (err as Error).message])
  }
  t.match(await removeOld(sql, 30, 100, null, archive), { removed: 3, next: null })
  t.match(left, only([huge, /^its line would have about 2\d\d MiB$/], [broken, 'unreadable']))
  t.same(
    (await sql`select id::text from task order by id`).map(row => row['id'] as string),
    [huge, broken],
    'they stay'
  )
  t.equal((await findArchived(dir, 'second')).length, 1)
  t.equal((await findArchived(dir, 'huge')).length, 0)
})

t.test('a batch with many long answers is read in parts', async t => {
  const { sql } = await testDb(t)
  const ids: string[] = []
  for (let n = 0; n < 20; n++) ids.push(await old(sql, `n-${n}`))
  await sql`
    insert into attempt (task_id, downstream, attempt, outcome, answer, ms, node, started_at)
    select id, 'warehouse', n, 'failed', convert_to(repeat('x', 16384), 'UTF8'), 1, 'a', now()
    from unnest(${ids}::uuid[]) as id, generate_series(3, 62) as n`
  const parts: { ids: string[]; bytes: number }[] = []
  const archive: Archive = {
    append: async records => {
      const bytes = records.reduce((sum, { line }) => sum + Buffer.byteLength(line), 0)
      parts.push({ ids: records.map(({ id }) => id), bytes })
    }
  }
  t.match(await removeOld(sql, 30, 100, null, archive), { removed: 20 })
  t.same(
    parts.flatMap(part => part.ids),
    ids.toSorted()
  )
  t.ok(parts.length < 10, 'but not one by one')
  t.same(
    parts.filter(({ bytes }) => bytes > 8 * 1_048_576),
    []
  )
})

t.test('the end of a file that a kill cut off hides nothing of what is before it', async t => {
  const { sql } = await testDb(t)
  const dir = folder(t)
  for (const taskNo of ['first', 'second', 'third']) await old(sql, taskNo)
  const line = async (taskNo: string) => (await findArchived(dir, taskNo)).length
  // Each batch has one task and is one gzip member of the file.
  let after: string | null = null
  for (let n = 0; n < 3; n++) ({ next: after } = await removeOld(sql, 30, 1, after, openArchive(dir, 'a')))
  const [name = ''] = readdirSync(dir)
  const file = path.join(dir, name)
  const whole = readFileSync(file)
  t.equal(gunzipSync(whole).toString().split('\n').length, 4, 'gunzip reads it as one text')
  truncateSync(file, whole.length - 9)
  const torn: string[] = []
  t.equal((await findArchived(dir, 'second', { onTorn: at => torn.push(at) })).length, 1)
  t.same(torn, [file])
  t.same([await line('first'), await line('third')], [1, 1], 'the third lost only its checksum')
  truncateSync(file, Math.floor(whole.length * 0.8))
  t.same([await line('second'), await line('third')], [1, 0])
})

t.test('what is archived after a torn member that cannot be cut off is found', async t => {
  const { sql } = await testDb(t)
  const dir = folder(t)
  const archive = openArchive(dir, 'a')
  await old(sql, 'first', 42)
  await old(sql, 'second', 41)
  await old(sql, 'third')
  t.match(await removeOld(sql, 30, 1, null, archive), { removed: 1 })
  const any = await open(path.join(dir, 'any'), 'w')
  await any.close()
  const files = Object.getPrototypeOf(any) as FileHandle
  const full = Object.assign(new Error('ENOSPC: no space left on device'), { code: 'ENOSPC' })
  const broken = [
    t.intercept(files, 'appendFile', {
      async value(this: FileHandle, bytes: Buffer) {
        await this.write(bytes.subarray(0, bytes.length >> 1))
        throw full
      }
    }),
    t.intercept(files, 'truncate', { value: () => Promise.reject(new Error('EIO: i/o error')) })
  ]
  await t.rejects(removeOld(sql, 30, 100, null, archive), full)
  for (const one of broken) one.restore()
  t.match(await removeOld(sql, 30, 100, null, archive), { removed: 2 })
  for (const taskNo of ['first', 'second', 'third'])
    t.equal((await findArchived(dir, taskNo)).length, 1, taskNo)
})

/** mulberry32: the same numbers for the same seed. */
function random(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

t.test(
  'H3: whatever stands, whatever the clocks say: what is open keeps its attempts and receipts, what goes is archived',
  async t => {
    const { sql } = await testDb(t)
    const seed = Number(process.env['SEED'] ?? Date.now() % 1e9)
    t.comment(`SEED=${seed}`)
    const next = random(seed)
    const days = 1 + Math.floor(next() * 60)
    const open = new Set<string>()
    const all: string[] = []
    for (let n = 0; n < 150; n++) {
      const state = states[Math.floor(next() * states.length)] ?? 'WAITING'
      // Half of the clocks are up to 8 days ahead or a year behind. The others are near the bound.
      const age = next() < 0.5 ? next() * 400 - 8 : days + (next() - 0.5) * 0.2
      const id = await standing(
        sql,
        { ...failed, attempt: 1, state },
        { taskId: idOf(age), taskNo: `n-${n}` }
      )
      const chance = next()
      let isOpen = phaseOf(state) !== null || age < days
      if (chance < 0.1) {
        await sql`update task set state = 'PREPARED' where id = ${id}`
        isOpen = true
      } else if (chance < 0.2 && state === 'FAILED') {
        await sql`update delivery set ordering_key = ${id}, position = 1 where task_id = ${id}`
        isOpen = true
      } else if (chance < 0.3) {
        await sql`insert into dependency (task_id, after_id) values (gen_random_uuid(), ${id})`
        isOpen = true
      } else if (chance < 0.4) {
        await standing(
          sql,
          { ...failed, attempt: 1, state: 'IN_FLIGHT' },
          { taskId: id, downstream: 'points' }
        )
        isOpen = true
      }
      await sql`
      insert into attempt (task_id, downstream, attempt, outcome, ms, node, started_at)
      values (${id}, 'warehouse', 1, 'delivered', 1, 'a', now())`
      await sql`
      insert into receipt (task_id, downstream, attempt, result, applied) values (${id}, 'warehouse', 1, 'HANDLED', true)`
      all.push(id)
      if (isOpen) open.add(id)
    }
    const archived = new Set<string>()
    const archive: Archive = {
      append: async records => {
        for (const { id } of records) archived.add(id)
      }
    }
    let after: string | null = null
    do ({ next: after } = await removeOld(sql, days, 7, after, archive))
    while (after !== null)
    const of = async (table: string, column: string) =>
      (await sql.unsafe(`select distinct ${column} as id from ${table}`))
        .map(row => String(row['id']))
        .toSorted()
    const left = [...open].toSorted()
    t.same(await of('task', 'id'), left)
    for (const table of ['delivery', 'attempt', 'receipt']) t.same(await of(table, 'task_id'), left, table)
    t.same([...archived].toSorted(), all.filter(id => !open.has(id)).toSorted())
  }
)
