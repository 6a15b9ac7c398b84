import t from 'tap'
import type { OutboxRead, OutboxRow } from '../../src/db/outbox.ts'
import { outboxFloor } from '../../src/delivery/outbox.ts'

const read = (ids: number[], endedBelow: number, begunBelow: number): OutboxRead => ({
  rows: ids.map(id => ({ id }) as OutboxRow),
  isFull: false,
  endedBelow,
  begunBelow
})

t.test('what is gone is looked at no more once nobody can come before it', async t => {
  const floor = outboxFloor(() => 0)
  t.equal(floor.id(), 0)
  floor.saw(read([1, 2, 9], 100, 120), true)
  t.equal(floor.id(), 0, 'one of 100 to 119 may have taken 3 to 8')
  floor.saw(read([], 119, 130), true)
  t.equal(floor.id(), 0, '119 has not ended')
  floor.saw(read([], 120, 140), true)
  t.equal(floor.id(), 9)
})

t.test('a row that is still there, or that could not be seen, keeps the floor where it is', async t => {
  const floor = outboxFloor(() => 0)
  floor.saw(read([1, 9], 100, 120), true)
  floor.saw(read([4, 12], 150, 160), true)
  t.equal(floor.id(), 0, '4 was committed late and has no answer')
  floor.saw(read([], 150, 160), false)
  t.equal(floor.id(), 0, 'somebody else has a shard of which nothing is known')
  floor.saw(read([12], 150, 160), true)
  t.equal(floor.id(), 9)
  floor.saw(read([], 170, 170), true)
  t.equal(floor.id(), 12)
})

t.test('once a minute all is looked at', async t => {
  let now = 0
  const floor = outboxFloor(() => now)
  floor.saw(read([9], 100, 120), true)
  floor.saw(read([], 120, 120), true)
  t.equal(floor.id(), 9)
  now = 60_000
  t.equal(floor.id(), 0)
  now = 60_001
  floor.saw(read([], 130, 130), true)
  t.equal(floor.id(), 0)
})
