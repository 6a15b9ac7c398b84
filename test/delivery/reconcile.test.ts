import t, { type Test } from 'tap'
import { claimAlarms, resolveAlarm } from '../../src/db/alarms.ts'
import { listAlarms } from '../../src/db/lists.ts'
import { reconciler } from '../../src/delivery/reconcile.ts'
import type { LoadedReconcile } from '../../src/handler/loaded.ts'
import { only } from '../support/only.ts'
import { readsOf } from '../support/postgres.ts'
import { setup } from '../support/setup.ts'
import { until } from '../support/until.ts'
import { weirdNames, weirdValues } from '../support/weird-values.ts'

/** A handler, and processes that run it. Its downstream `warehouse` reports the tasks in `theirs` as handled. */
async function story(t: Test, more: Partial<LoadedReconcile> = {}) {
  const theirs = new Set<string>()
  const asked: { from: Date; to: Date; downstream: string }[] = []
  const it = await setup(t, {
    downstream: {
      reconcile: {
        everyMs: 86_400_000,
        settleMs: 1,
        async *run(about) {
          asked.push(about)
          yield* theirs
        },
        ...more
      }
    }
  })
  const reads = readsOf(t, it.sql)
  const processOf = (node: string, runMs = 60_000) =>
    reconciler({ sql: it.sql, reads, handlers: it.handlers, node, log: it.log, runMs })
  const one = processOf('one')
  const never = new AbortController().signal
  await one.look(never)
  const alarms = async () => {
    const listed = await listAlarms(reads, {
      messageCodes: null,
      from: new Date(Date.now() - 86_400_000),
      kind: 'MISMATCH',
      limit: 100
    })
    if (listed === 'bad_cursor') throw new Error(listed)
    return listed.alarms.toSorted((a, b) => (a.taskNo < b.taskNo ? -1 : 1))
  }
  /** Makes the next run due, as a day later. */
  const due = () =>
    it.sql`update reconciliation set next_at = now(), compared_to = compared_to - interval '1 hour'`
  return { ...it, theirs, asked, alarms, due, processOf, one, never }
}

t.test('differences become alarms, and are resolved once there is none', async t => {
  const { post, quiet, theirs, asked, alarms, due, one, never, sql, downstream, receive, logged } =
    await story(t)
  t.ok(one.isUsed)
  t.equal(asked.length, 0, 'the first run comes after its time')
  const [same, missing] = [await post(), await post()]
  await quiet()
  downstream.usual = { kind: 'failed', reason: 'connection_closed' }
  const differs = await post()
  await quiet()
  theirs.add(same).add(differs).add('order:unknown')
  await due()
  await new Promise(resolve => setTimeout(resolve, 5)) // now all are older than settleMs
  await one.look(never)
  t.match(asked, only({ downstream: 'warehouse', from: Date, to: Date }))
  t.match(
    await alarms(),
    only(
      ...[
        { taskNo: missing, kind: 'MISMATCH', status: 'HANDLED', reason: 'MISSING' },
        { taskNo: differs, kind: 'MISMATCH', status: 'SENDING', reason: 'DIFFERS' },
        { taskNo: 'order:unknown', kind: 'MISMATCH', messageCode: 'order.paid', reason: 'UNKNOWN' }
      ].toSorted((a, b) => (a.taskNo < b.taskNo ? -1 : 1))
    )
  )
  t.match(
    logged('reconcile.mismatch'),
    only({ missing: 1, differs: 1, unknown: 1, unknownTaskNos: only('order:unknown') })
  )
  t.same(
    (await claimAlarms(sql, 10)).map(({ taskNo, reason }) => `${taskNo} ${reason}`).toSorted(),
    [`${missing} MISSING`, `${differs} DIFFERS`, 'order:unknown UNKNOWN'].toSorted()
  )

  await one.look(never)
  t.equal(asked.length, 1, 'not before it is due')
  await sql`update reconciliation set next_at = now()`
  await one.look(never)
  t.equal(
    (await alarms()).filter(alarm => !('resolvedAt' in alarm)).length,
    3,
    'still so: the window reaches back'
  )

  theirs.add(missing)
  const last = downstream.requests.findLast(request => request.taskNo === differs)
  await receive({ taskNo: differs, token: last?.token })
  await sql`update delivery set status = 1, phase = null, next_action_at = null, handled_at = now(), handled_by = 'receipt' where status = 0`
  theirs.delete('order:unknown')
  await sql`insert into task (id, task_no, message_code, scene_type, message_body, content_hash, created_by)
    select id, 'order:unknown', 'order.paid', '', '{}', '', 'test' from (select gen_random_uuid() as id) x`
  await sql`insert into delivery (task_id, downstream, status, attempt, tries_left, needs_receipt, handled_at, handled_by)
    select id, 'warehouse', 1, 1, 9, false, now(), 'send' from task where task_no = 'order:unknown'`
  await sql`update reconciliation set next_at = now()`
  await one.look(never)
  t.match(await alarms(), only({ resolvedAt: /Z$/ }, { resolvedAt: /Z$/ }))
  t.equal((await alarms()).length, 2, 'the one about nobody is gone')
  t.equal(logged('reconcile.same').length, 1)
})

t.test(
  'an operator resolves the alarm about unknown tasks, and it comes back only if run returns them',
  async t => {
    const { sql, theirs, alarms, due, one, never, logged } = await story(t)
    const again = async () => {
      await due()
      await one.look(never)
    }
    const resolve = (more: { messageCodes?: string[]; taskNo?: string } = {}) => {
      const key = { downstream: 'warehouse', attempt: 0, kind: 'MISMATCH', who: { name: 'ann' } } as const
      return resolveAlarm(sql, { taskNo: 'order:gone', messageCodes: null, ...key, ...more })
    }
    theirs.add('order:gone')
    await again()
    theirs.clear()
    await again()
    t.match(
      await alarms(),
      only({ taskNo: 'order:gone', reason: 'UNKNOWN' }),
      'it lies before the window now'
    )
    t.equal(await resolve({ messageCodes: ['stock.moved'] }), null)
    t.equal(await resolve({ taskNo: 'order:other' }), null)
    t.equal(await resolve(), true)
    t.equal(await resolve(), false)
    t.match(await alarms(), only({ taskNo: 'order:gone', resolvedAt: /Z$/ }))
    t.match(await sql`select who, target from audit`, only({ who: 'ann', target: 'order:gone' }))
    await again()
    t.same(await alarms(), [])
    t.equal(logged('reconcile.same').length, 1)
    theirs.add('order:gone')
    await again()
    t.match(await alarms(), only({ taskNo: 'order:gone' }))
    await resolve()
    await again()
    t.notOk('resolvedAt' in (await alarms())[0]!, 'run returns it still')
  }
)

t.test('the alarm about unknown tasks stays while some of them are, however many others come', async t => {
  const { sql, theirs, due, one, never } = await story(t)
  const alarm = async () =>
    (await sql`select task_id from alarm where kind = 'MISMATCH'`).map(row => String(row['task_id']))
  theirs.add('order:gone')
  await due()
  await one.look(never)
  const first = await alarm()
  t.equal(first.length, 1)
  theirs.clear()
  for (let n = 0; n < 150; n++) theirs.add(`order:another-${n}`)
  await due()
  await one.look(never)
  t.same(await alarm(), first)
})

t.test('the alarm about unknown tasks ends after a week, and others are a new alarm', async t => {
  const { sql, theirs, alarms, due, one, never } = await story(t)
  const again = async () => {
    await due()
    await one.look(never)
  }
  theirs.add('order:gone')
  await again()
  theirs.clear()
  await sql`update alarm set created_at = now() - interval '6 days'`
  await again()
  t.equal((await sql`select from alarm where resolved_at is null`).length, 1)
  await sql`update alarm set created_at = now() - interval '8 days', sent_at = now()`
  theirs.add('order:later')
  await again()
  t.match(await alarms(), only({ taskNo: 'order:later', reason: 'UNKNOWN' }), 'it is told for itself')
  theirs.clear()
  await sql`update alarm set created_at = now() - interval '8 days'`
  await again()
  t.equal((await sql`select from alarm`).length, 0)
})

t.test('two processes: one runs it; one that lost its lease writes nothing', async t => {
  let go = (): void => {}
  const held = new Promise<void>(resolve => (go = resolve))
  const runs: string[] = []
  const { due, processOf, never, sql, one, logged } = await story(t, {
    async run() {
      runs.push('run')
      if (runs.length === 1) await held
      return ['order:unknown']
    }
  })
  await due()
  const first = one.look(never)
  while (runs.length === 0) await new Promise(resolve => setImmediate(resolve))
  await processOf('two').look(never)
  t.equal(runs.length, 1, 'another leaves it alone')
  await sql`update reconciliation set until = now() - interval '1 s'`
  await processOf('two').look(never)
  t.equal(runs.length, 2, 'once the lease is over another runs it')
  const written = await sql`select ran_at, owner, unknown from reconciliation`
  go()
  await first
  t.same(await sql`select ran_at, owner, unknown from reconciliation`, written)
  t.equal(logged('reconcile.mismatch').length, 1)
})

t.test('a run that throws, hangs or gives nonsense comes again, and says why', async t => {
  const cases: [LoadedReconcile['run'], RegExp][] = [
    [() => Promise.reject(new Error('no such table')), /no such table/],
    [() => new Promise(() => {}), /too long/],
    [() => [7] as unknown as string[], /not a taskNo/],
    [() => 7 as unknown as string[], /iterable/]
  ]
  for (const [run, error] of cases) {
    const { due, processOf, never, sql } = await story(t, { run })
    await due()
    await processOf('one', 200).look(never)
    const [row] = await sql`select error, owner, next_at > now() as later, ran_at from reconciliation`
    t.match(row, { error, owner: null, later: true, ran_at: null })
  }
})

t.test('a value that is no taskNo is logged, and the others are compared', async t => {
  const { post, quiet, theirs, alarms, due, one, never, sql, logged } = await story(t)
  const [same, missing] = [await post(), await post()]
  await quiet()
  theirs
    .add(undefined as unknown as string)
    .add('two words\0')
    .add(same)
  await due()
  await new Promise(resolve => setTimeout(resolve, 5)) // now all are older than settleMs
  await one.look(never)
  t.match(await alarms(), only({ taskNo: missing, reason: 'MISSING' }))
  t.match(
    logged('reconcile.invalid'),
    only({ downstream: 'warehouse', invalid: 2, invalidValues: only('undefined', 'two words\uFFFD') })
  )
  t.match(await sql`select error, missing from reconciliation`, only({ error: null, missing: 1 }))
})

t.test('a comparison that cannot be claimed is logged, and the later ones run', async t => {
  const { handlers, asked, never, sql, log, logged } = await story(t)
  const [known] = handlers.values()
  if (!known) throw new Error('no handler')
  const messageCode = 'an.earlier.one'
  const both = new Map([[messageCode, { ...known, messageCode }], ...handlers])
  const two = reconciler({ sql, reads: readsOf(t, sql), handlers: both, node: 'two', log })
  await two.look(never)
  await sql`update reconciliation set next_at = now()`
  await sql.unsafe(`
    create function refuse() returns trigger language plpgsql as $$begin raise exception 'this row is broken' using errcode = '22012'; end$$;
    create trigger refuse before update on reconciliation for each row when (old.message_code = '${messageCode}')
      execute function refuse()`)
  await two.look(never)
  t.equal(asked.length, 1)
  t.match(logged('reconcile.failed'), only({ messageCode, err: /this row is broken/ }))
})

t.test('whatever a run throws or returns, it is recorded and comes again', async t => {
  let run: () => unknown = () => []
  const { due, one, never, sql } = await story(t, { run: () => run() as never })
  const runs = weirdNames.flatMap(name => [
    () => {
      throw weirdValues[name]()
    },
    () => [weirdValues[name]()]
  ])
  for (run of runs) {
    await due()
    await one.look(never)
    const [row] = await sql`select error, owner, next_at > now() as later from reconciliation`
    t.match(row, { error: /./, owner: null, later: true }, String(run))
  }
})

t.test('a task that was handled while run collected the taskNos is not missing', async t => {
  let handle = (): PromiseLike<unknown> => Promise.resolve()
  const { post, quiet, due, one, never, sql, downstream, alarms, logged } = await story(t, {
    settleMs: -60_000, // the window ends after all that this test posts
    async run() {
      await handle()
      return []
    }
  })
  downstream.usual = { kind: 'failed', reason: 'connection_closed' }
  await post()
  await quiet()
  handle = () =>
    sql`update delivery set status = 1, phase = null, next_action_at = null, handled_at = clock_timestamp(), handled_by = 'send'`
  await due()
  await one.look(never)
  t.match(logged('reconcile.same'), only({ missing: 0 }))
  t.same(await alarms(), [])
})

t.test('the tasks of another messageCode do no harm, but those without a delivery are unknown', async t => {
  const { post, quiet, theirs, due, one, never, sql, downstream, logged } = await story(t)
  const handled = await post()
  await quiet()
  downstream.usual = { kind: 'failed', reason: 'connection_closed' }
  const open = await post()
  await quiet()
  await sql`update task set message_code = 'stock.moved'`
  await sql`insert into task (id, task_no, message_code, scene_type, message_body, content_hash, created_by)
    values (gen_random_uuid(), 'stock:nowhere', 'stock.moved', '', '{}', '', 'test')`
  theirs.add(handled).add(open).add('stock:nowhere')
  await due()
  await one.look(never)
  t.match(
    logged('reconcile.mismatch'),
    only({ missing: 0, differs: 0, unknown: 1, unknownTaskNos: only('stock:nowhere') })
  )
})

t.test(
  'what is too much for one run is divided, and one run follows another until nothing is left',
  async t => {
    const hours = ({ from, to }: { from: Date; to: Date }) => Math.round((+to - +from) / 3_600_000)
    const asked: number[] = []
    const { one, never, sql } = await story(t, {
      run(about) {
        asked.push(hours(about))
        if (hours(about) > 12) throw new RangeError('too many')
        return []
      }
    })
    await sql`update reconciliation set next_at = now(), compared_to = now() - interval '100 hours'`
    await one.look(never)
    t.same(asked, [48], 'twice its time, however long nobody ran it')
    await until('nothing is left', async () => {
      await sql`update reconciliation set next_at = now() where error is not null`
      await one.look(never)
      return (await sql`select from reconciliation where error is null and next_at > now()`).count === 1
    })
    const [row] = await sql`select compared_to > now() - interval '1 minute' as done from reconciliation`
    t.match(row, { done: true })
    t.same(asked.slice(0, 4), [48, 2, 48, 2], 'after a failure a sixteenth, and then the next one at once')
  }
)
