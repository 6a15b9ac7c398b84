// The API lists and releases held ordering keys. It runs over a real PostgreSQL.
import t from 'tap'
import {
  listOrderingKeys,
  removeOrderingKeys,
  type OrderingKey,
  type KeyView
} from '../../src/db/ordering.ts'
import { routeAlarms } from '../../src/alarm/send-alarms.ts'
import { removeOld } from '../../src/db/retention.ts'
import { only } from '../support/only.ts'
import { taskRequest } from '../support/task-request.ts'
import { readsOf } from '../support/postgres.ts'
import { setup } from '../support/setup.ts'
import { api } from './fake.ts'

const refused = { kind: 'refused', reason: 'http_410' } as const

t.test(
  'keys that are held are listed with who holds them, how many wait and since when, page by page',
  async t => {
    const story = await setup(t)
    const reads = readsOf(t, story.sql)
    story.downstream.usual = refused
    for (const orderingKey of ['a', 'b/ä', 'c'])
      for (const n of [1, 2, 3])
        await story.accept(taskRequest({ taskNo: `${orderingKey.slice(0, 1)}${n}`, orderingKey }))
    await story.quiet()
    story.downstream.holds = true
    await story.accept(taskRequest({ taskNo: 'd1', orderingKey: 'd' }))
    const all = { held: true, messageCodes: null, limit: 2 }
    const seen: KeyView[] = []
    let cursor: OrderingKey | undefined
    do {
      const page = await listOrderingKeys(reads, { ...all, ...(cursor ? { cursor } : {}) })
      seen.push(...page.keys)
      cursor = page.next
    } while (cursor)
    t.match(
      seen,
      ['a', 'b/ä', 'c'].map(orderingKey => ({
        downstream: 'warehouse',
        orderingKey,
        waiting: 2,
        heldSince: /^2/,
        head: { taskNo: `${orderingKey.slice(0, 1)}1`, messageCode: 'order.paid', status: 'FAILED' }
      }))
    )
    t.equal(seen.length, 3)
    const ofAll = await listOrderingKeys(reads, { ...all, held: false, limit: 10 })
    t.match(ofAll.keys.at(-1), {
      orderingKey: 'd',
      waiting: 0,
      heldSince: undefined,
      head: { status: 'SENDING' }
    })
    t.same((await listOrderingKeys(reads, { ...all, messageCodes: ['order.sent'] })).keys, [])
    t.same((await listOrderingKeys(reads, { ...all, downstream: 'points' })).keys, [])
    await routeAlarms(story, [])
    t.same(
      story
        .logged('alarm')
        .filter(one => one['kind'] === 'KEY_HELD')
        .map(({ orderingKey, waiting }) => ({ orderingKey, waiting }))
        .toSorted((a, b) => String(a.orderingKey).localeCompare(String(b.orderingKey))),
      ['a', 'b/ä', 'c'].map(orderingKey => ({ orderingKey, waiting: 2 })),
      'the alarm in the log says which key is held, and how many wait for it'
    )
    await story.around.refresh()
    story.downstream.answer()
  }
)

t.test('retention keeps a held head and its key, and removes keys of which nothing is left', async t => {
  const story = await setup(t)
  const { accept, downstream, quiet, sql, release } = story
  downstream.next(refused)
  await accept.many(['a', 'b'].map(taskNo => taskRequest({ taskNo, orderingKey: 'held' })))
  await accept(taskRequest({ taskNo: 'c', orderingKey: 'done' }))
  await quiet()
  t.equal(
    (await removeOld(sql, -1, 100, null)).removed,
    1,
    'c, and neither what holds the key nor what waits'
  )
  t.same(await removeOrderingKeys(sql, 1, null), {
    removed: 1,
    next: { downstream: 'warehouse', orderingKey: 'done' }
  })
  t.same(await removeOrderingKeys(sql, 10, { downstream: 'warehouse', orderingKey: 'done' }), {
    removed: 0,
    next: null
  })
  await release('held')
  await quiet()
  t.equal((await removeOld(sql, -1, 100, null)).removed, 2)
  t.equal((await removeOrderingKeys(sql, 10, null)).removed, 1)
})

t.test('a key is released by its path, whatever characters it has', async t => {
  const { app, audits } = await api(t)
  const release = async (key: string, downstream = 'warehouse') => {
    const url = `/keys/${downstream}/${encodeURIComponent(key)}/release`
    const answer = await app.inject({ method: 'POST', url })
    return { status: answer.statusCode, ...answer.json<object>() }
  }
  const longest = '語'.repeat(128)
  t.match(await release('order-42'), { status: 200, orderingKey: 'order-42', taskNo: 'order-A-1' })
  t.match(await release('a/b ?#%'), { status: 200, orderingKey: 'a/b ?#%' })
  t.match(await release(longest), { status: 200, orderingKey: longest })
  t.match(await release(`${longest}x`), { status: 404, code: 'KEY_NOT_FOUND' })
  t.match(await release('a\nb'), { status: 404, code: 'KEY_NOT_FOUND' })
  t.match(await release('a', 'NOBODY'), { status: 404, code: 'KEY_NOT_FOUND' })
  t.equal(audits.length, 3)
})

t.test('a key is released of the task that its operator saw at the head', async t => {
  const { app, audits } = await api(t)
  const release = async (payload: object) => {
    const answer = await app.inject({ method: 'POST', url: '/keys/warehouse/order-42/release', payload })
    return { status: answer.statusCode, ...answer.json<object>() }
  }
  t.match(await release({ taskNo: 'order-A-2' }), {
    status: 409,
    code: 'KEY_NOT_HELD',
    detail: 'it is not held by this task'
  })
  t.match(await release({ taskNo: 'order A' }), { status: 422, code: 'INVALID', pointer: '/taskNo' })
  t.equal(audits.length, 0)
  t.match(await release({ taskNo: 'order-A-1' }), { status: 200, taskNo: 'order-A-1' })
})

t.test('the list of keys goes by what is asked for, and a cursor that is none is refused', async t => {
  const filters: object[] = []
  const last = { downstream: 'warehouse', orderingKey: 'b/ä' }
  const { app } = await api(t, {
    listOrderingKeys: async filter => {
      filters.push(filter)
      return { keys: [{ ...last, waiting: 1 }], next: last }
    }
  })
  const { nextCursor } = (await app.inject('/keys?held=true&downstream=warehouse&limit=1')).json<{
    nextCursor: string
  }>()
  await app.inject(`/keys?cursor=${nextCursor}`)
  t.match(
    filters,
    only(
      { held: true, downstream: 'warehouse', limit: 1, cursor: undefined },
      { held: false, limit: 50, cursor: last }
    )
  )
  t.match((await app.inject('/keys?cursor=x')).json(), { status: 422, pointer: '?/cursor' })
  t.match((await app.inject('/keys?held=yes')).json(), { status: 422, pointer: '?/held' })
})
