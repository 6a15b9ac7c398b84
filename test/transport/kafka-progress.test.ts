import t from 'tap'
import { progress } from '../../src/transport/kafka/receipts.ts'

t.test('nothing is committed past a record that is not done', async t => {
  const done = progress()
  for (const offset of [5n, 6n, 7n]) t.ok(done.begin(0, offset))
  t.same(done.news(), [])
  done.end(0, 6n)
  done.end(0, 7n)
  t.same(done.news(), [], '5 is not done')
  done.end(0, 5n)
  t.strictSame(done.news(), [{ partition: 0, offset: 8n }])
  t.same(done.news(), [], 'each is said once')
})

t.test('partitions go their own ways', async t => {
  const done = progress()
  done.begin(0, 1n)
  done.begin(1, 1n)
  done.end(1, 1n)
  t.strictSame(done.news(), [{ partition: 1, offset: 2n }])
  t.ok(done.busy())
})

t.test('a record that comes again while it is handled is not handled twice', async t => {
  const done = progress()
  t.ok(done.begin(0, 3n))
  t.notOk(done.begin(0, 3n))
  done.end(0, 3n)
  t.ok(done.begin(0, 3n), 'after a rebalance it may')
})
