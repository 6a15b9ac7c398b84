import fc from 'fast-check'
import t from 'tap'
import { openDb } from '../../src/db/pool.ts'
import { insertTasks } from '../../src/db/tasks.ts'
import { newDelivery, newTask } from '../support/new-task.ts'
import { only } from '../support/only.ts'
import { testDb } from '../support/postgres.ts'
import { stored } from '../support/rows.ts'

t.test('accepting is the first claim: attempt 1, one try taken, the lease running', async t => {
  const { sql } = await testDb(t)
  const one = newTask()
  t.match(await insertTasks(sql, [one]), only({ kind: 'created', at: Date, inFlight: only(0) }))
  const row = await stored(sql, one.id)
  t.same(row.standing, { state: 'IN_FLIGHT', attempt: 1, triesLeft: 9, lost: 0, roundFrom: 1 })
  t.ok(row.inMs !== null && row.inMs > 15_000 && row.inMs <= 20_000)
})

t.test('what is not due, has no room or is skipped is not claimed', async t => {
  const { sql } = await testDb(t)
  const tasks = [
    newTask({ delayMs: 60_000 }),
    newTask({ startAt: new Date(Date.now() + 60_000) }),
    newTask({ deliveries: [newDelivery({ claim: false })] }),
    newTask({ deliveries: [newDelivery({ skipped: true })] }),
    newTask({ startAt: new Date(Date.now() - 60_000) }),
    newTask({ delayMs: 60_000, deliverBefore: new Date(Date.now() + 30_000) }),
    newTask({ delayMs: 0 })
  ]
  const done = await insertTasks(sql, tasks)
  t.same(
    done.map(one => one.kind === 'created' && one.inFlight),
    [[], [], [], [], [0], [], [0]]
  )
  const rows = await Promise.all(tasks.map(one => stored(sql, one.id)))
  const near = (at: number, ms: number) => t.ok(Math.abs((rows[at]?.inMs ?? Infinity) - ms) < 3_000, `${at}`)
  near(0, 60_000)
  near(1, 60_000)
  near(2, 0)
  t.match(rows[3], {
    standing: { state: 'DELETED', attempt: 0, triesLeft: 10 },
    reason: 'SKIPPED',
    inMs: null
  })
  near(5, 30_000)
})

t.test('a taskNo that is taken gives the content of what is stored, also within the batch', async t => {
  const { sql } = await testDb(t)
  await insertTasks(sql, [newTask({ taskNo: 'a', contentHash: 'first', contentNormal: 'in normal form' })])
  const done = await insertTasks(sql, [
    newTask({ taskNo: 'a', contentHash: 'other' }),
    newTask({ taskNo: 'b', contentHash: 'one' }),
    newTask({ taskNo: 'b', contentHash: 'one' })
  ])
  t.same(done[0], { kind: 'known', content: { contentHash: 'first', contentNormal: 'in normal form' } })
  t.same(
    done
      .slice(1)
      .map(one => one.kind)
      .toSorted(),
    ['created', 'known']
  )
  t.equal((await sql`select from delivery`).length, 2)
})

t.test('any text of a task comes back as it was', async t => {
  const { sql } = await testDb(t)
  const odd = fc
    .sample(fc.string({ unit: 'grapheme', maxLength: 80 }), { numRuns: 200, seed: 5 })
    .map(text => text.replaceAll('\0', ''))
  const texts = [
    ...odd,
    'NULL',
    'null',
    '{}',
    '{"a":"}"}',
    '"',
    '\\',
    '\\"',
    ',',
    ' ',
    '',
    "'; drop table task; --",
    '\n\r\t\u2028'
  ]
  const tasks = texts.map((text, n) =>
    newTask({ taskNo: `${n} ${text}`, messageBody: text, sceneType: text, createdBy: text })
  )
  await insertTasks(sql, tasks)
  const rows = await sql<{ task_no: string; message_body: string; scene_type: string; created_by: string }[]>`
    select task_no, message_body, scene_type, created_by from task`
  const back = new Map(rows.map(row => [row.task_no, row]))
  for (const { taskNo, messageBody } of tasks) {
    t.match(back.get(taskNo), { message_body: messageBody, scene_type: messageBody, created_by: messageBody })
  }
})

t.test(
  'several processes that post the same tasks in any order neither fail nor store one twice',
  async t => {
    const { url, sql } = await testDb(t)
    const pools = [sql, openDb(url, { max: 4 }), openDb(url, { max: 4 })]
    t.teardown(() => Promise.all(pools.slice(1).map(pool => pool.end())))
    const nos = Array.from({ length: 100 }, (_, n) => `no:${n}`)
    const done = await Promise.all(
      Array.from({ length: 24 }, (_, n) => {
        const order = n % 2 ? nos : nos.toReversed()
        return insertTasks(
          pools[n % 3]!,
          order.map(taskNo => newTask({ taskNo }))
        )
      })
    )
    t.equal(done.flat().filter(one => one.kind === 'created').length, 100)
    t.ok(
      done
        .flat()
        .every(one => one.kind === 'created' || (one.kind === 'known' && one.content?.contentHash === 'hash'))
    )
    t.equal((await sql`select from delivery`).length, 100)
  }
)
