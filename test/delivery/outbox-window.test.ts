import t from 'tap'
import type { OutboxRead, OutboxRow } from '../../src/db/outbox.ts'
import { outboxWindow } from '../../src/delivery/outbox-window.ts'

const read = (ids: number[], endedBelow: number, begunBelow: number): OutboxRead => ({
  rows: ids.map(id => ({ id }) as OutboxRow),
  isFull: false,
  endedBelow,
  begunBelow
})

t.test('what is gone is looked at no more once nobody can come before it', async t => {
  const window = outboxWindow(() => 0)
  t.equal(window.floor(), 0)
  window.saw(read([1, 2, 9], 100, 120), true)
  t.equal(window.floor(), 0, 'one of 100 to 119 may have taken 3 to 8')
  window.saw(read([], 119, 130), true)
  t.equal(window.floor(), 0, '119 has not ended')
  window.saw(read([], 120, 140), true)
  t.equal(window.floor(), 9)
})

t.test('a row that is still there, or that could not be seen, keeps the floor where it is', async t => {
  const window = outboxWindow(() => 0)
  window.saw(read([1, 9], 100, 120), true)
  window.saw(read([4, 12], 150, 160), true)
  t.equal(window.floor(), 0, '4 was committed late and has no answer')
  window.saw(read([], 150, 160), false)
  t.equal(window.floor(), 0, 'somebody else drains a shard of which nothing is known')
  window.saw(read([12], 150, 160), true)
  t.equal(window.floor(), 9)
  window.saw(read([], 170, 170), true)
  t.equal(window.floor(), 12)
})

t.test('once a minute all is looked at', async t => {
  let now = 0
  const window = outboxWindow(() => now)
  window.saw(read([9], 100, 120), true)
  window.saw(read([], 120, 120), true)
  t.equal(window.floor(), 9)
  now = 60_000
  t.equal(window.floor(), 0)
  now = 60_001
  window.saw(read([], 130, 130), true)
  t.equal(window.floor(), 0)
})
