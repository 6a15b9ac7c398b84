// Writes rows as Ackbox would have written them, by SQL and while no Ackbox runs: a million in less than a minute.
import postgres, { type Sql } from 'postgres'
import { inChunks } from './chunks.ts'
import { messageBodyOf } from './posted.ts'

export interface Filling {
  url: string
  run: string
  count: number
  signal: AbortSignal
}

interface Spread {
  /** The time of the first task; the others follow evenly until `to`. */
  from: Date
  to: Date
}

const hourMs = 3_600_000
const size = 50_000

/** Tasks of the last hour whose deliveries are due: as an accept writes them if the queue has no room. */
export async function fillDue(filling: Filling): Promise<void> {
  const spread = { from: new Date(Date.now() - hourMs), to: new Date() }
  await fill('due deliveries', filling, spread, async (sql, from, to) => {
    await insertTasks(sql, from, to)
    await sql`
      insert into delivery (
        task_id, downstream, status, phase, next_action_at, attempt, tries_left, needs_receipt, created_at, updated_at
      )
      select id, 'bench-sink', 0, 'WAITING', at, 0, 10, false, at, at
      from pg_temp.made(${from}, ${to})`
  })
}

/** Tasks of the last ten days, handled at their first attempt. Younger than RETENTION_DAYS: they are not removed. */
export async function fillEnded(filling: Filling, days = 10): Promise<void> {
  const spread = { from: new Date(Date.now() - days * 24 * hourMs), to: new Date(Date.now() - hourMs) }
  await fill('ended tasks', filling, spread, async (sql, from, to) => {
    await insertTasks(sql, from, to)
    await sql`
      insert into delivery (
        task_id, downstream, status, attempt, tries_left, needs_receipt, delivered_at, handled_at, handled_by,
        created_at, updated_at
      )
      select id, 'bench-sink', 1, 1, 9, false, at, at, 'send', at, at
      from pg_temp.made(${from}, ${to})`
    await sql`
      insert into attempt (
        task_id, downstream, attempt, outcome, status_code, answer, headers, address, ms, node, started_at
      )
      select id, 'bench-sink', 1, 'delivered', 200, '{}',
        '[["content-type","application/json"],["content-length","2"]]', '127.0.0.1:40000', 1, 'bench-1-0a1b2c', at
      from pg_temp.made(${from}, ${to})`
  })
}

/** The same, but one in 200 is FAILED after three attempts, with its alarm and its failure; and the counts by minute. */
export async function fillPast(filling: Filling): Promise<void> {
  const spread = { from: new Date(Date.now() - 240 * hourMs), to: new Date() }
  await fill('ended tasks, some of which FAILED', filling, spread, async (sql, from, to) => {
    await insertTasks(sql, from, to)
    await sql`
      insert into delivery (
        task_id, downstream, status, reason, attempt, tries_left, needs_receipt, delivered_at, handled_at, handled_by,
        created_at, updated_at
      )
      select id, 'bench-sink', case when n % 200 = 0 then 2 else 1 end, case when n % 200 = 0 then 'SEND_EXHAUSTED' end,
        case when n % 200 = 0 then 3 else 1 end, case when n % 200 = 0 then 0 else 9 end, false,
        case when n % 200 > 0 then at end, case when n % 200 > 0 then at end, case when n % 200 > 0 then 'send' end, at, at
      from pg_temp.made(${from}, ${to})`
    await sql`
      insert into attempt (
        task_id, downstream, attempt, outcome, reason, status_code, answer, headers, address, ms, node, started_at
      )
      select id, 'bench-sink', try, case when n % 200 > 0 then 'delivered' else 'failed' end,
        case when n % 200 = 0 then 'http_503' end, case when n % 200 > 0 then 200 else 503 end, '{}',
        '[["content-type","application/json"],["content-length","2"]]', '127.0.0.1:40000', 1, 'bench-1-0a1b2c', at
      from pg_temp.made(${from}, ${to}), generate_series(1, case when n % 200 = 0 then 3 else 1 end) try`
    await sql`
      insert into failure (task_id, downstream, attempt, message_code, fingerprint, reason, status_code, line, created_at)
      select id, 'bench-sink', 3, 'bench', left(md5((n / 200 % 40)::text), 16), 'SEND_EXHAUSTED', 503,
        'cause ' || n / 200 % 40, at
      from pg_temp.made(${from}, ${to}) where n % 200 = 0`
    await sql`
      insert into alarm (task_id, downstream, attempt, kind, created_at, sent_at)
      select id, 'bench-sink', 3, 'FAILED', at, at from pg_temp.made(${from}, ${to}) where n % 200 = 0`
    await sql`
      insert into stat_minute
      select date_trunc('minute', at), 'bench-1', 'bench-sink', 'bench', count(*), count(*), 0, count(*), count(*), 0, 0,
        array_fill(count(*)::int / 23, array[23])
      from pg_temp.made(${from}, ${to}) group by 1
      on conflict (minute, node, downstream, message_code) do nothing`
  })
}

async function fill(
  what: string,
  { url, run, count, signal }: Filling,
  { from, to }: Spread,
  chunk: (sql: Sql, from: number, to: number) => Promise<void>
): Promise<void> {
  // One connection, which owns the temporary objects. Commits do not wait for the disk, since nothing here must be durable.
  const sql = postgres(url, { max: 1, onnotice: () => {}, connection: { synchronous_commit: 'off' } })
  try {
    await sql`create temporary table spread (run text, from_at timestamptz, step interval)`
    await sql`insert into spread values (${run}, ${from}, (${to}::timestamptz - ${from}) / ${count}::float8)`
    // Ids grow with time, as in UUID version 7: tasks that are posted together are stored together.
    await sql`
      create function pg_temp.made(first bigint, past bigint)
        returns table (id uuid, n bigint, task_no text, at timestamptz)
        language sql stable
      as $$
        select (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7' ||
          lpad(to_hex(n % 4096), 3, '0') || '8' || left(md5(n::text), 15))::uuid, n, run || '-' || n, at
        from (select n, run, from_at + n * step as at from pg_temp.spread, generate_series(first, past - 1) n) made
      $$`
    await inChunks(what, { count, size, signal }, (first, past) => chunk(sql, first, past))
    await sql`vacuum analyze`
    await sql`checkpoint`
  } finally {
    await sql.end({ timeout: 5 })
  }
}

async function insertTasks(sql: Sql, from: number, to: number): Promise<void> {
  await sql`
    insert into task (
      id, task_no, message_code, scene_type, message_body, content_hash, created_at, created_by
    )
    select id, task_no, 'bench', '', body, translate(encode(sha256(body::bytea), 'base64'), '+/=', '-_'), at, 'local'
    from (select *, format(${messageBodyOf('%s', '%s')}, task_no, n) as body from pg_temp.made(${from}, ${to})) made
    order by id`
}
