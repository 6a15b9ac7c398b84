// A role that may create objects in the schema of the tables gets none of its code run by a function of ours.
import postgres from 'postgres'
import t from 'tap'
import { foreignCode, openSchemasFor } from '../../src/db/foreign-code.ts'
import { grantOutbox } from '../../src/db/outbox.ts'
import { testDb } from '../support/postgres.ts'

t.test('each function of ours resolves names in pg_catalog only', async t => {
  const { sql } = await testDb(t)
  const functions = await sql<{ name: string; config: string[] | null; source: string }[]>`
    select p.oid::regprocedure::text as name, p.proconfig as config, p.prosrc as source
    from pg_proc p
    where p.pronamespace in (current_schema()::regnamespace, 'ackbox_api'::regnamespace)
      or p.oid in (select tgfoid from pg_trigger where not tgisinternal)
    order by name`
  t.ok(functions.length >= 14)
  for (const { name, config, source } of functions) {
    t.ok(
      config?.includes('search_path=pg_catalog, pg_temp'),
      `${name} has SET search_path = pg_catalog, pg_temp`
    )
    t.notMatch(source, '\\', `${name} reads the same whatever standard_conforming_strings is`)
  }
})

/** Each fits an expression in our functions better than what PostgreSQL has, and would be called in its place. */
const planted = [
  `function public.mallory_join(name, name) returns text language plpgsql as $$
    begin insert into public.taken values (current_user); return $1::text operator(pg_catalog.||) $2::text; end $$`,
  `operator public.|| (leftarg = name, rightarg = name, function = public.mallory_join)`,
  `function public.mallory_member(jsonb, jsonb) returns text language plpgsql as $$
    begin insert into public.taken values (current_user); return 'planted'; end $$`,
  `operator public.->> (leftarg = jsonb, rightarg = jsonb, function = public.mallory_member)`,
  `function public.mallory_times(numeric, int) returns numeric language plpgsql as $$
    begin insert into public.taken values (current_user); return $1 operator(pg_catalog.*) $2::numeric; end $$`,
  `operator public.* (leftarg = numeric, rightarg = int, function = public.mallory_times)`,
  `function public.mallory_by(bigint, numeric) returns numeric language plpgsql as $$
    begin insert into public.taken values (current_user); return $1::numeric operator(pg_catalog./) $2; end $$`,
  `operator public./ (leftarg = bigint, rightarg = numeric, function = public.mallory_by)`,
  `function public.format(text, text, text) returns text language plpgsql as $$
    begin insert into public.taken values (current_user); return pg_catalog.format($1, $2, $3); end $$`,
  `function public.format(text, text) returns text language plpgsql as $$
    begin insert into public.taken values (current_user); return pg_catalog.format($1, $2); end $$`,
  `function public.to_char(timestamp, name) returns text language plpgsql as $$
    begin insert into public.taken values (current_user); return pg_catalog.to_char($1, $2::text); end $$`,
  `type public.shadow as (n int)`,
  `function public.mallory_text(public.shadow) returns text language plpgsql as $$
    begin insert into public.taken values (current_user); return ''; end $$`,
  `cast (public.shadow as text) with function public.mallory_text(public.shadow) as implicit`
]

t.test('operators and functions of a role that may enqueue are never run with our rights', async t => {
  const { url, sql } = await testDb(t)
  const role = `mallory_${process.pid}`
  await sql.unsafe(`create role ${role} login password 'pass'`)
  t.teardown(() => sql.unsafe(`drop owned by ${role} cascade; drop role ${role}`))
  await grantOutbox(sql, { role, who: { name: 'test' } })
  await sql.unsafe(`grant create on schema public to ${role}`)
  const mallory = postgres(Object.assign(new URL(url), { username: role, password: 'pass' }).href, {
    max: 1,
    onnotice: () => {}
  })
  t.teardown(() => mallory.end({ timeout: 1 }))
  await mallory.unsafe(`create table public.taken (who name); grant insert on public.taken to public`)
  for (const object of planted) await mallory.unsafe(`create ${object}`)

  await mallory`create temp table outbox (task_no text)`
  await mallory`select ackbox_api.enqueue('order.paid', '1', 'by-text')`
  await mallory`select ackbox_api.enqueue('order.paid', '1'::jsonb, 'by-jsonb')`
  const tasks = JSON.stringify([{ taskNo: 'by-many', messageCode: 'order.paid', messageBody: 1 }])
  await mallory`select ackbox_api.enqueue_many(${tasks}::text::jsonb)`
  // The functions that our own sessions call.
  await sql`insert into ordering (downstream, ordering_key, next) values ('warehouse', 'k', 1)`
  await sql`select public.promote(array['warehouse'], array['k'], array[1000::float8], array[true], 1)`
  await sql`select public.release_key('warehouse', 'k', null)`
  const [last] =
    await sql`select high::text as high from public.partitions_of('attempt') order by high desc limit 1`
  await sql`select public.make_partition('attempt', ${String(last?.['high'])}::uuid)`
  await sql`select public.drop_partition('attempt', 'attempt_first')`

  const taken = await sql<{ who: string }[]>`select distinct who::text from taken where who <> ${role}`
  t.same([...taken], [], 'none of it ran as another role')
  const rows = await sql`select task_no, created_by from outbox order by id`
  const createdBy = `sql:${role}`
  t.same(
    [...rows],
    ['by-text', 'by-jsonb', 'by-many'].map(taskNo => ({ task_no: taskNo, created_by: createdBy }))
  )
})

t.test(
  'rights and objects of other roles where our statements look are found, until they are gone',
  async t => {
    const { sql } = await testDb(t)
    const [role, other] = [`Foreign_${process.pid}`, `other_${process.pid}`]
    await sql.unsafe(`create role "${role}"; create role ${other}`)
    t.teardown(() =>
      sql.unsafe(`drop owned by "${role}", ${other} cascade; drop role "${role}"; drop role ${other}`)
    )
    await sql`revoke create on schema public from public`
    t.same(await foreignCode(sql), [])
    t.same(await openSchemasFor(sql, role), [])

    await sql.unsafe(`grant create on schema public to public; grant create on schema drizzle to "${role}"`)
    t.same(
      (await foreignCode(sql)).map(({ remedy }) => remedy),
      [`revoke create on schema drizzle from "${role}";`, 'revoke create on schema public from public;']
    )
    for (const name of [role, other])
      t.same(await openSchemasFor(sql, name), ['revoke create on schema public from public;'], name)
    await sql.unsafe(`set role "${role}";
    create function public.join_names(name, name) returns text language sql return 'planted';
    create operator public.|| (leftarg = name, rightarg = name, function = public.join_names);
    create function public.format(text, text) returns text language sql return 'planted';
    create function public.promote(text) returns text language sql return 'planted';
    create function public.of_the_shop(text) returns text language sql return 'harmless';
    reset role`)
    const planted = (await foreignCode(sql)).filter(({ isThere }) => isThere)
    t.same(planted, [
      {
        isThere: true,
        found: `public.format(text, text) of ${role} may run in place of one that Ackbox means`,
        remedy: 'drop function public.format(text, text);'
      },
      {
        isThere: true,
        found: `public.promote(text) of ${role} may run in place of one that Ackbox means`,
        remedy: 'drop function public.promote(text);'
      },
      {
        isThere: true,
        found: `public.||(name, name) of ${role} may run in place of one that Ackbox means`,
        remedy: 'drop operator public.||(name, name);'
      }
    ])
    for (const { remedy } of await foreignCode(sql)) await sql.unsafe(remedy)
    t.same(await foreignCode(sql), [], 'once done as told')
    t.same(await openSchemasFor(sql, role), [])

    await sql.unsafe(`alter schema drizzle owner to ${other}`)
    const found = await foreignCode(sql)
    t.same(
      found.map(one => one.found),
      [`the schema drizzle belongs to ${other}`]
    )
    await sql.unsafe(found[0]?.remedy ?? '')
    t.same(await foreignCode(sql), [])
    await sql.unsafe(`grant insert on task to ${other}; grant create on schema public to ${other}`)
    t.same(await foreignCode(sql), [], 'a role that writes our tables anyway gains nothing by it')
  }
)

t.test(
  'a role that may create a schema with the name of our user is found: its statements would search that first',
  async t => {
    const { url, sql } = await testDb(t)
    const role = `other_${process.pid}`
    await sql.unsafe(`create role ${role}`)
    t.teardown(() => sql.unsafe(`drop owned by ${role} cascade; drop role ${role}`))
    const database = new URL(url).pathname.slice(1)
    await sql.unsafe(
      `revoke create on schema public from public; grant create on database ${database} to ${role}`
    )
    const [found] = await foreignCode(sql)
    t.match(found, { isThere: false, remedy: /^alter role postgres set search_path = public;$/ })
  }
)
