// Rows that Ackbox answers 500 or 503 for stay, and rest before they are posted again.
import t from 'tap'
import { keptRows } from '../../src/relay/kept.ts'
import { mysqlSource } from '../../src/relay/mysql.ts'
import { postgresSource } from '../../src/relay/postgres.ts'
import { relay } from '../../src/relay/relay.ts'
import type { RelayRow, RowVerdict, Share } from '../../src/relay/source.ts'
import { answer, fakeAckbox } from '../producer/fake-ackbox.ts'
import { numbered } from '../support/stage.ts'
import { until } from '../support/until.ts'
import { insert, kinds, producer } from './producer.ts'

t.setTimeout(600_000)

const nothing = (): void => {}

for (const kind of kinds) {
  t.test(
    `${kind}: a row that Ackbox answers 500 or 503 for is not posted with each row that comes`,
    async t => {
      const from = await producer(t, kind)
      if (!from) return
      const source = await (kind === 'postgres' ? postgresSource : mysqlSource)(from.url, 4)
      t.teardown(() => source.close())
      const fake = await fakeAckbox(t)
      const failing = ['poison', 'poison of a key', 'elsewhere']
      const posted: string[] = []
      fake.script = ({ text }, response) => {
        const { tasks } = JSON.parse(text) as { tasks: { taskNo: string }[] }
        posted.push(...tasks.map(one => one.taskNo))
        const results = tasks.map(({ taskNo }) =>
          failing.includes(taskNo)
            ? { taskNo, status: taskNo === 'elsewhere' ? 503 : 500, code: 'ITS_CODE' }
            : { taskNo, status: 201 }
        )
        const [first] = results
        return results.every(one => one.status === 500)
          ? answer(response, 500, first)
          : answer(response, 200, { results })
      }
      const times = (taskNo: string): number => posted.filter(one => one === taskNo).length
      const warned: object[] = []
      let clock = 0
      const stop = new AbortController()
      const running = relay(
        {
          source,
          target: { url: fake.url, key: undefined, timeoutMs: 30_000 },
          log: { debug: nothing, info: nothing, error: nothing, warn: about => warned.push(about) },
          batch: 10,
          concurrency: 1,
          onBatch: nothing,
          onHealth: nothing
        },
        stop.signal,
        keptRows(undefined, () => clock)
      )
      await from.run(
        insert([
          ['poison', 'test.plain', '{}'],
          ['poison of a key', 'test.plain', '{}', 'k'],
          ['elsewhere', 'test.plain', '{}']
        ])
      )
      await until('all are posted', () => failing.every(taskNo => times(taskNo) > 0))
      await until('all are logged', () => warned.length >= 3)
      await from.run(insert([['behind', 'test.plain', '{}', 'k']]))
      for (const taskNo of numbered('good', 5)) {
        await from.run(
          insert([
            [taskNo, 'test.plain', '{}'],
            [`${taskNo} of a key`, 'test.plain', '{}', 'another key']
          ])
        )
        await until('the good ones are posted', () => times(taskNo) + times(`${taskNo} of a key`) === 2)
      }
      t.same(failing.map(times), [1, 1, 1])
      t.equal(times('behind'), 0, 'what is behind it in its key waits')
      clock += 1_001
      await until('all are posted again', () => failing.every(taskNo => times(taskNo) > 1))
      await until('the one behind it leaves', async () => (await from.waiting()) === 3)
      t.same(posted.filter(one => one === 'behind' || one === 'poison of a key').slice(0, 3), [
        'poison of a key',
        'poison of a key',
        'behind'
      ])
      stop.abort()
      await running
      t.same(failing.map(times), [2, 2, 2])
      // Rows with a key and rows without one are posted side by side: either is first.
      const of = (taskNo: string) => warned.filter(about => 'taskNo' in about && about.taskNo === taskNo)
      t.match(
        failing.map(of),
        failing.map(taskNo => [{ taskNo, tries: 1, problem: /ITS_CODE/ }]),
        'each is logged once'
      )
      t.equal(warned.length, 3)
    }
  )

  t.test(`${kind}: rows that rest are not read, also with ids that no double holds`, async t => {
    const from = await producer(t, kind)
    if (!from) return
    const source = await (kind === 'postgres' ? postgresSource : mysqlSource)(from.url, 1)
    t.teardown(() => source.close())
    await from.run(
      kind === 'postgres'
        ? 'alter table ackbox_outbox alter column id restart with 9007199254740993'
        : 'alter table ackbox_outbox auto_increment = 9007199254740993'
    )
    await from.run(insert(numbered('n', 3).map((no): [string, string, string] => [no, 'test.plain', '{}'])))
    await from.run(insert(numbered('k', 40).map(no => [no, 'test.plain', '{}', no])))
    const read = async (share: Share, resting?: string[]): Promise<RelayRow[]> => {
      const found: RelayRow[] = []
      const keep = async (rows: RelayRow[]): Promise<RowVerdict[]> => {
        found.push(...rows)
        return rows.map(() => ({ kind: 'kept' }))
      }
      await source.postShare(share, 500, keep, resting && { resting })
      return found
    }
    for (const share of ['unkeyed', ...(await source.shards())] as Share[]) {
      const all = await read(share)
      for (const [index, { id, orderingKey }] of all.entries())
        t.same(await read(share, [orderingKey ?? id]), all.toSpliced(index, 1))
    }
  })
}

const row = (id: number, taskNo = `n-${id}`) =>
  ({ id: String(id), taskNo, orderingKey: null }) as unknown as RelayRow

t.test('the rest of a row grows, and ends when the row has left', t => {
  let clock = 0
  const kept = keptRows(undefined, () => clock)
  for (const [index, seconds] of [1, 2, 4, 8, 10, 10].entries()) {
    t.equal(kept.add('unkeyed', row(1)), index + 1)
    clock += seconds * 1_000 - 1
    t.same(kept.resting('unkeyed'), ['1'])
    clock += 1
    t.same(kept.resting('unkeyed'), [])
  }
  t.equal(kept.add('unkeyed', row(1, 'another')), 1, 'an outbox that was truncated gives ids again')
  kept.remove(row(1))
  t.same(kept.resting('unkeyed'), [])
  kept.add(3, { ...row(2), orderingKey: 'k' })
  t.same([kept.resting(3), kept.resting(4), kept.resting('unkeyed')], [['k'], [], []])
  t.end()
})

t.test('a thousand rows are remembered, and those that others removed are forgotten', t => {
  let clock = 0
  const kept = keptRows(undefined, () => clock)
  for (let id = 1; id <= 1_000; id++) t.equal(kept.add('unkeyed', row(id)), 1)
  t.equal(kept.add('unkeyed', row(1_001)), undefined)
  t.equal(kept.add('unkeyed', row(1_000)), 2)
  clock = 61_001
  t.equal(kept.add('unkeyed', row(1_001)), 1)
  t.equal(kept.add('unkeyed', row(1)), 1, 'it was forgotten')
  t.end()
})
