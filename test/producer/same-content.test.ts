// One task, written by every route in every spelling.
import { randomInt } from 'node:crypto'
import t, { type Test } from 'tap'
import { fetch } from 'undici'
import { chance, type Chance } from '../../chaos/random.ts'
import { AckboxError, client, enqueue, outbox, type Task } from '../../src/producer/producer.ts'
import { relay } from '../relay/producer.ts'
import { start, untilHeard } from '../support/service.ts'
import { stage, type Stage } from '../support/stage.ts'
import { until } from '../support/until.ts'
import { mariadbShop, postgresShop, type Shop } from './databases.ts'

t.setTimeout(1_200_000)

/** What a task says. Undefined: nothing about this. */
interface Meaning {
  n: number
  sceneType?: string | undefined
  startMs?: number | undefined
  delay?: number | undefined
  beforeMs?: number | undefined
  orderingKey?: string | undefined
  needCallback?: boolean | undefined
  retryTimes?: number | undefined
  bizKey?: string | undefined
  uniqueBiz?: boolean | undefined
  after?: string[] | undefined
  extend?: Record<string, unknown> | undefined
}

const day = 86_400_000
const earlier = ['earlier-1', 'earlier-2', 'earlier-3']

function meaningBy(by: Chance, n: number): Meaning {
  const some = <Value>(value: Value): Value | undefined => (by.hit(0.4) ? value : undefined)
  const bizKey = some(`order-${n}`)
  const startMs = by.hit(0.5)
    ? Math.floor(Date.now() / 1_000 + by.whole(86_400, 30 * 86_400)) * 1_000 + by.pick([0, 7])
    : undefined
  return {
    n,
    sceneType: some('vip'),
    // Never due during the test: nothing is sent.
    ...(startMs === undefined ? { delay: by.pick([0, day, 2 * day]) } : { startMs }),
    beforeMs: some(Date.now() + by.whole(40 * day, 50 * day)),
    orderingKey: some(`key-${n}`),
    needCallback: some(false),
    retryTimes: some(by.whole(1, 9)),
    bizKey,
    uniqueBiz: bizKey === undefined ? undefined : some(true),
    after: some(by.shuffled(earlier).slice(by.whole(0, 2))),
    extend: some({ a: by.pick([1, 0.1, 1e-7]), z: [{ b: null, c: '\u8ba2' }] })
  }
}

/** The same but for one member. */
function anotherBy(by: Chance, meaning: Meaning): Meaning {
  const { startMs, delay = 0, beforeMs = Date.now() + 60 * day, retryTimes = 9, bizKey } = meaning
  return by.pick<() => Meaning>([
    () => ({ ...meaning, n: meaning.n + 1_000 }),
    () => ({ ...meaning, sceneType: meaning.sceneType ? undefined : 'vip' }),
    () => (startMs ? { ...meaning, startMs: startMs + 1 } : { ...meaning, delay: delay + 1 }),
    () => ({ ...meaning, beforeMs: beforeMs + 1 }),
    () => ({ ...meaning, orderingKey: `${meaning.orderingKey ?? ''}another` }),
    () => ({ ...meaning, needCallback: meaning.needCallback === undefined ? false : undefined }),
    () => ({ ...meaning, retryTimes: retryTimes + 1 }),
    () => ({ ...meaning, bizKey: `${bizKey ?? ''}another`, uniqueBiz: meaning.uniqueBiz }),
    () => ({ ...meaning, extend: { ...meaning.extend, more: true } })
  ])()
}

/** The same instant, written in one of many ways. `finer`: digits after those of a millisecond, which is then rounded up. */
function timeBy(by: Chance, ms: number, finer: [string, ...string[]] = ['0000004', '999', '1']): string {
  const local = (minutes: number): string => new Date(ms + minutes * 60_000).toISOString().slice(0, -1)
  return by.pick([
    `${local(0)}Z`,
    `${local(0)}000+00:00`,
    `${local(480)}+08:00`,
    `${local(-570)}-09:30`,
    `${new Date(ms - 1).toISOString().slice(0, -1)}${by.pick(finer)}Z`,
    // Without a fraction, if there is none.
    `${local(0).replace(/\.000$/, '')}Z`
  ])
}

/** A default is written, or left out. */
const orDefault = <Value>(by: Chance, value: Value | undefined, none: Value): Value | undefined =>
  value === undefined || value === none ? (by.hit(0.5) ? none : undefined) : value

const reversed = (value: Record<string, unknown>) => Object.fromEntries(Object.entries(value).toReversed())

/** The members of a POST. */
function membersBy(by: Chance, taskNo: string, meaning: Meaning): Record<string, unknown> {
  const { startMs, beforeMs, bizKey, after, extend } = meaning
  const members = {
    taskNo,
    messageCode: 'test.plain',
    sceneType: orDefault(by, meaning.sceneType, ''),
    deliverStartTime: startMs && timeBy(by, startMs),
    delay: startMs === undefined ? orDefault(by, meaning.delay, 0) : undefined,
    deliverBefore: beforeMs && timeBy(by, beforeMs),
    orderingKey: meaning.orderingKey,
    needCallback: meaning.needCallback,
    retryTimes: meaning.retryTimes,
    bizType: bizKey && 'order',
    bizKey,
    uniqueBiz: orDefault(by, meaning.uniqueBiz, false),
    after: after && by.shuffled([...after, ...(by.hit(0.3) ? after : [])]),
    extend: extend ? (by.hit(0.5) ? extend : reversed(extend)) : orDefault(by, extend, {}),
    prepared: by.hit(0.3) ? false : undefined
  }
  return Object.fromEntries(by.shuffled(Object.entries(members).filter(([, value]) => value !== undefined)))
}

/** The same for ackbox/producer, whose times may be Dates. */
function taskBy(by: Chance, taskNo: string, meaning: Meaning): Task {
  const { prepared: _, ...members } = membersBy(by, taskNo, meaning)
  const { startMs, beforeMs } = meaning
  if (startMs && by.hit(0.5)) members['deliverStartTime'] = new Date(startMs)
  if (beforeMs && by.hit(0.5)) members['deliverBefore'] = new Date(beforeMs)
  return { ...members, messageCode: 'test.plain', messageBodyText: bodyOf(meaning) }
}

const bodyOf = ({ n }: Meaning): string => `{"n": ${n}}`

const postText = (by: Chance, taskNo: string, meaning: Meaning): string =>
  `{"messageBody":${bodyOf(meaning)},${JSON.stringify(membersBy(by, taskNo, meaning)).slice(1)}`

interface Entry {
  taskNo: string
  meaning: Meaning
}

/** A way in. It tells of each task whether it was taken: as a new one, or as one that is there. */
interface Route {
  name: string
  takes?: (meaning: Meaning) => boolean
  write: (by: Chance, entries: readonly Entry[]) => Promise<boolean[]>
}

function isTaken(status: number, code: unknown): boolean {
  if (status === 200 || status === 201) return true
  if (status === 409 && code === 'TASK_CONFLICT') return false
  throw new Error(`${status} ${String(code)}`)
}

async function post(url: string, text: string): Promise<{ status: number; body: unknown }> {
  const headers = { 'content-type': 'application/json' }
  return await untilHeard(async () => {
    const answer = await fetch(url, { method: 'POST', headers, body: text })
    return { status: answer.status, body: await answer.json() }
  })
}

const codeOf = (body: unknown): unknown => (body as { code?: unknown }).code

async function postBatch(url: string, texts: readonly string[]): Promise<boolean[]> {
  const { body } = await post(`${url}/tasks/batch`, `{"tasks":[${texts.join()}]}`)
  return (body as { results: { status: number; code?: string }[] }).results.map(one =>
    isTaken(one.status, one.code)
  )
}

const posts = (url: string): Route[] => [
  {
    name: 'POST /tasks',
    async write(by, entries) {
      const taken: boolean[] = []
      for (const { taskNo, meaning } of entries) {
        const { status, body } = await post(`${url}/tasks`, postText(by, taskNo, meaning))
        taken.push(isTaken(status, codeOf(body)))
      }
      return taken
    }
  },
  {
    name: 'POST /tasks/batch',
    write: (by, entries) =>
      postBatch(
        url,
        entries.map(({ taskNo, meaning }) => postText(by, taskNo, meaning))
      )
  },
  {
    name: 'client.post',
    async write(by, entries) {
      const taken: boolean[] = []
      for (const { taskNo, meaning } of entries) {
        const answer = await client({ url })
          .post(taskBy(by, taskNo, meaning))
          .catch((err: unknown) => {
            if (err instanceof AckboxError) return { status: err.status, code: err.code }
            throw err
          })
        taken.push('taskNo' in answer || isTaken(answer.status ?? 0, answer.code))
      }
      return taken
    }
  },
  {
    name: 'client.batch',
    async write(by, entries) {
      const tasks = entries.map(({ taskNo, meaning }) => taskBy(by, taskNo, meaning))
      return (await client({ url }).batch(tasks)).map(({ status, code }) => isTaken(status, code))
    }
  }
]

/** Rows of the same database. A refused row is taken away again. */
function enqueues({ sql }: Stage, url: string): Route[] {
  const written = async (taskNos: readonly string[], write: () => Promise<unknown>): Promise<boolean[]> => {
    await write()
    await client({ url }).nudge()
    await until('the rows are read', async () => (await sql`select from outbox limit 1`).count === 0)
    const rejected = await sql<{ task_no: string; code: string; problem: object }[]>`
      delete from outbox_rejected returning task_no, problem->>'code' as code, problem`
    for (const { code, problem } of rejected)
      if (code !== 'TASK_CONFLICT') throw new Error(JSON.stringify(problem))
    return taskNos.map(taskNo => !rejected.some(one => one.task_no === taskNo))
  }
  const taskNosOf = (entries: readonly Entry[]) => entries.map(one => one.taskNo)
  return [
    {
      name: 'enqueue(tx, task)',
      takes: ({ after, uniqueBiz }) => !after && !uniqueBiz,
      write: (by, entries) =>
        written(taskNosOf(entries), async () => {
          await sql.begin(async tx => {
            for (const { taskNo, meaning } of entries)
              await enqueue(tx, { ...taskBy(by, taskNo, meaning), uniqueBiz: undefined })
          })
        })
    },
    {
      name: 'select ackbox_api.enqueue()',
      takes: ({ after, uniqueBiz }) => !after && !uniqueBiz,
      write: (by, entries) =>
        written(taskNosOf(entries), async () => {
          for (const { taskNo, meaning } of entries) {
            const { startMs, beforeMs, delay, bizKey, extend } = meaning
            // PostgreSQL itself rounds to microseconds.
            const time = (ms: number | undefined) => (ms ? timeBy(by, ms, ['001', '999', '1']) : null)
            const wait = startMs === undefined ? orDefault(by, delay, 0) : undefined
            await sql`
              select ackbox_api.enqueue(
                'test.plain', ${bodyOf(meaning)}::text, ${taskNo}, scene_type => ${meaning.sceneType ?? by.pick([null, ''])},
                deliver_start_time => ${time(startMs)}::text::timestamptz, deliver_before => ${time(beforeMs)}::text::timestamptz,
                delay => ${wait === undefined ? null : `${wait} ms`}::text::interval, ordering_key => ${meaning.orderingKey ?? null},
                need_callback => ${meaning.needCallback ?? null}, retry_times => ${meaning.retryTimes ?? null},
                biz_type => ${bizKey ? 'order' : null}, biz_key => ${bizKey ?? null},
                extend => ${extend ? JSON.stringify(extend) : by.pick([null, '{}'])}::text::jsonb
              )`
          }
        })
    },
    {
      name: 'select ackbox_api.enqueue_many()',
      takes: ({ after }) => !after,
      write: (by, entries) =>
        written(taskNosOf(entries), async () => {
          const texts = entries.map(({ taskNo, meaning }) => postText(by, taskNo, meaning))
          await sql`select ackbox_api.enqueue_many(${`[${texts.join()}]`}::text::jsonb)`
        })
    }
  ]
}

/** Rows of the producer's own database, brought by the relay. It turns a delay into the time at which that ends. */
function relayed(t: Test, name: string, shop: Shop, url: string): Route {
  return {
    name,
    takes: ({ delay }) => !delay,
    async write(by, entries) {
      await shop.db.begin(async native => {
        for (const { taskNo, meaning } of entries)
          await outbox(shop.db.within(native), taskBy(by, taskNo, meaning))
      })
      await relay(t, shop.url, url, '--once').said(/left the outbox/)
      const rejected = await shop.select('select task_no, problem from ackbox_outbox_rejected')
      await shop.db.query('delete from ackbox_outbox_rejected', [])
      for (const { problem } of rejected)
        if (codeOf(JSON.parse(String(problem))) !== 'TASK_CONFLICT') throw new Error(String(problem))
      return entries.map(({ taskNo }) => !rejected.some(one => one['task_no'] === taskNo))
    }
  }
}

t.test(
  'one task, however it is written and by whatever way it comes; another content is refused',
  async t => {
    const at = await stage(t)
    if (!at) return
    const seed = randomInt(1_000_000)
    t.comment(`seed ${seed}`)
    const by = chance(seed, 'same content')
    const { url } = await start(t, at.env)
    const mariadb = await mariadbShop(t)
    const routes: [Route, ...Route[]] = [
      relayed(t, 'outbox(tx, task) in PostgreSQL', await postgresShop(t), url),
      ...posts(url),
      ...enqueues(at, url),
      ...(mariadb ? [relayed(t, 'outbox(tx, task) in MariaDB', mariadb, url)] : [])
    ]
    for (const taskNo of earlier)
      await post(`${url}/tasks`, JSON.stringify({ taskNo, messageCode: 'test.plain', messageBody: { n: 1 } }))

    const entries: Entry[] = Array.from({ length: 40 }, (_, n) => ({
      taskNo: `task-${n}`,
      meaning: meaningBy(by, n)
    }))
    const first = new Map(
      entries.map(one => {
        const open = routes.filter(({ takes }) => takes?.(one.meaning) ?? true)
        return [one, by.pick(open as [Route, ...Route[]])]
      })
    )
    for (const route of routes) {
      const own = entries.filter(one => first.get(one) === route)
      const taken = own.length > 0 ? await route.write(by, own) : []
      t.ok(taken.every(Boolean), `${own.length} tasks come first by ${route.name}`)
    }
    const stored = await at.sql<{ id: string; hash: string }[]>`
    select id, content_hash || coalesce(content_normal, '') as hash from task order by id`
    t.equal(stored.length, entries.length + earlier.length)

    for (const { name, takes, write } of routes) {
      const own = entries.filter(({ meaning }) => takes?.(meaning) ?? true)
      const taken = await write(by, own)
      const refused = own.filter((_, at) => !taken[at]).map(one => [first.get(one)?.name, one])
      t.same(refused, [], `${name}: all are known again, in another spelling`)

      const others = own.map(({ taskNo, meaning }) => ({ taskNo, meaning: anotherBy(by, meaning) }))
      const known = others.filter(({ meaning }) => takes?.(meaning) ?? true)
      const knownAgain = await write(by, known)
      t.same(
        known.filter((_, at) => knownAgain[at]),
        [],
        `${name}: a real difference is a conflict`
      )
    }

    for (const { taskNo, meaning } of entries) {
      const fresh = { ...meaning, uniqueBiz: undefined }
      const twin = (of: Meaning): string => postText(by, `${taskNo}-twin`, of)
      t.same(
        await postBatch(url, [twin(fresh), twin(fresh), twin(anotherBy(by, fresh)), twin(fresh)]),
        [true, true, false, true],
        'so it is within one batch'
      )
    }
    t.same(
      await at.sql`
      select id, content_hash || coalesce(content_normal, '') as hash from task
      where task_no not like '%-twin' order by id`,
      stored,
      'and nothing has become another task'
    )
  }
)

t.test('a half message is the same however its check is written', async t => {
  const at = await stage(t)
  if (!at) return
  const { url } = await start(t, at.env)
  const prepare = async (taskNo: string, more: object) => {
    const task = { taskNo, messageCode: 'test.plain', messageBody: { n: 1 }, prepared: true, ...more }
    const { status, body } = await post(`${url}/tasks`, JSON.stringify(task))
    const [again] = await postBatch(url, [JSON.stringify(task)])
    return [isTaken(status, codeOf(body)), again]
  }
  const task = { messageCode: 'test.plain', messageBody: { n: 1 } }
  await client({ url }).prepare({ taskNo: 'default', ...task })
  for (const checkBack of [undefined, {}, { after: '35s' }, { after: '35000ms' }])
    t.same(await prepare('default', { checkBack, extend: {} }), [true, true], JSON.stringify(checkBack))
  t.same(await prepare('default', { checkBack: { after: '36s' } }), [false, false])
  t.same(await prepare('default', { prepared: false }), [false, false], 'a task that waits for no commit')

  await client({ url }).prepare({ taskNo: 'minute', ...task }, { checkAfter: '60s' })
  for (const after of ['1m', '60s', '60000ms', '1.0m'])
    t.same(await prepare('minute', { checkBack: { after } }), [true, true], after)
  t.same(await prepare('minute', {}), [false, false])
})
