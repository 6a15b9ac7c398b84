import t from 'tap'
import { watchChanges, type Change } from '../../src/delivery/watch-changes.ts'
import type { Logger } from '../../src/runtime/logger.ts'
import { setup } from '../support/setup.ts'
import { until } from '../support/until.ts'

t.test(
  'whoever begins to watch while the database is away hears of it at the first look that succeeds',
  async t => {
    const { sql, post, quiet } = await setup(t)
    const taskNo = await post()
    await quiet()
    let failed = 0
    const log = { debug: () => failed++ } as unknown as Logger
    const watching = watchChanges({ sql, log })
    const hear = () => {
      const told: Change[] = []
      t.teardown(
        watching({
          quotaKey: 'a',
          messageCodes: null,
          taskNo,
          tell: changes => told.push(...changes)
        }) as () => void
      )
      return told
    }
    const first = hear()
    await until('the first is told', () => first.length === 1)
    await sql`alter table audit rename to away`
    const second = hear()
    const before = failed
    // One look may have begun before the rename.
    await until('two looks fail', () => failed >= before + 2)
    await sql`alter table away rename to audit`
    await until('the second is told', () => second.length > 0)
    t.same(second, [{ kind: 'task', taskNo }])
    t.same(first, [{ kind: 'task', taskNo }], 'nothing has changed since')
  }
)

t.test('one caller has half of the places at most, and there is always one for another', async t => {
  const { sql } = await setup(t)
  const watching = watchChanges({ sql, log: { debug() {} } as unknown as Logger })
  const ends: (() => void)[] = []
  t.teardown(() => ends.forEach(end => end()))
  const fill = (quotaKey: string) => {
    for (let n = 0; ; n++) {
      const end = watching({ quotaKey, messageCodes: null, tell: () => {} })
      if (end === 'busy') return n
      ends.push(end)
    }
  }
  t.same(['greedy', 'second', 'third', 'greedy'].map(fill), [100, 50, 25, 0])
  for (const end of ends.splice(0, 100)) end()
  t.equal(fill('greedy'), 63, 'what is free again is shared again')
})
