// The numbers of processes, and which process may declare another one dead.
import t, { type Test } from 'tap'
import { writeNode, liveNodes } from '../../src/db/cluster.ts'
import { addOwner, beat, declareDead, openBeats, removeOwner } from '../../src/db/owners.ts'
import type { PostgresClient } from '../../src/db/pool.ts'
import { testDb } from '../support/postgres.ts'

async function beats(t: Test) {
  const { url, sql } = await testDb(t)
  const own = openBeats(url)
  t.teardown(() => own.end({ timeout: 1 }))
  return {
    sql,
    own,
    join: (node: string) => addOwner(own, { node, isWorker: true, process: null }),
    silent: (number: number, interval: string) =>
      sql`update owner set seen_at = now() - ${interval}::text::interval where number = ${number}`
  }
}

t.test('a number is never used again, not even that of a process that left', async t => {
  const { own, join } = await beats(t)
  const first = await join('a')
  const second = await join('b')
  await removeOwner(own, second)
  const third = await join('c')
  t.ok(first < second && second < third)
})

t.test('a beat hears of those that are silent for a second, and of no others', async t => {
  const { own, join } = await beats(t)
  const [mine, lively, quiet] = [await join('mine'), await join('lively'), await join('quiet')]
  // Within one transaction now() stays the same.
  const heard = await own.begin(async at => {
    await at`update owner set seen_at = now() - interval '0.99 s' where number = ${lively}`
    await at`update owner set seen_at = now() - interval '1.01 s' where number = ${quiet}`
    return await beat(at as unknown as PostgresClient, mine)
  })
  t.same(heard, [{ number: quiet, process: null, silentMs: 1_010 }])
})

t.test(
  'who is silent for too long is declared dead by one alone, and hears of it with its next beat',
  async t => {
    const { sql, own, join, silent } = await beats(t)
    const [mine, quiet] = [await join('mine'), await join('quiet')]
    for (const id of ['mine', 'quiet']) await writeNode(sql, { id, roles: 'worker', version: 'test' })
    const asked = [{ number: quiet, silentMs: 3_000 }]
    t.same(await declareDead(own, asked), [], 'not yet')
    await silent(quiet, '4 s')
    t.same(await declareDead(own, asked), [{ number: quiet, node: 'quiet', isWorker: true }])
    const live = await liveNodes(sql)
    t.same(
      live.map(({ id }) => id),
      ['mine'],
      'it counts as no worker any more'
    )
    t.same(await declareDead(own, asked), [], 'a second one comes too late')
    t.equal(await beat(own, quiet), undefined)
    t.same(await beat(own, mine), [], 'the others live on')
  }
)

t.test('who beats before it is declared dead lives on', async t => {
  const { own, join, silent } = await beats(t)
  const quiet = await join('quiet')
  await silent(quiet, '4 s')
  t.same(await beat(own, quiet), [])
  t.same(await declareDead(own, [{ number: quiet, silentMs: 3_000 }]), [])
})
