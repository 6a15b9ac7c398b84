import t from 'tap'
import { underWay, wrongs, type Books } from '../../examples/stock-freeze/books.ts'
import { holds } from '../support/example.ts'
import { only } from '../support/only.ts'

t.test('frozen stock is sold when its order is paid, and released when it is not', async t => {
  const lines = await holds(t, 'stock-freeze', '--count', '12')
  t.ok(lines.some(line => line.endsWith('who pays: 3 PAID')))
  t.ok(lines.some(line => line.endsWith('who has a bad card: 3 PAYMENT_FAILED')))
  t.ok(lines.some(line => line.endsWith('who never pays: 3 FREEZE_RELEASED')))
})

t.test('its books show stock that is lost or sold twice, and money for nothing', async t => {
  const books = (
    [available, frozen, sold]: [number, number, number],
    freeze: Books['freezes'][number]['state'],
    order: Books['orders'][number]['state'],
    isCharged = order === 'PAID'
  ): Books => ({
    shelves: [{ sku: 'book', initial: 10, available, frozen, sold }],
    freezes: [{ orderId: 'one', sku: 'book', quantity: 2, state: freeze }],
    orders: [{ orderId: 'one', sku: 'book', quantity: 2, state: order, isCharged }]
  })
  t.same(wrongs(books([8, 2, 0], 'FROZEN', 'UNPAID')), [])
  t.same(underWay(books([8, 2, 0], 'FROZEN', 'UNPAID')), ['one', 'one'])
  t.same(wrongs(books([8, 2, 0], 'FROZEN', 'PAID')), [], 'paid, and the stock has yet to hear of it')
  t.same(wrongs(books([8, 0, 2], 'RELEASED_SOLD', 'PAID')), [])
  t.same(underWay(books([8, 0, 2], 'RELEASED_SOLD', 'PAID')), [])
  t.same(wrongs(books([10, 0, 0], 'RELEASED_UNSOLD', 'UNPAID')), [], 'the orders have yet to hear of it')

  t.match(wrongs(books([7, 0, 2], 'RELEASED_SOLD', 'PAID')), only(/are not 10$/), 'lost')
  t.match(wrongs(books([6, 0, 4], 'RELEASED_SOLD', 'PAID')), only(/not what its freezes say$/), 'sold twice')
  t.same(wrongs(books([8, 0, 2], 'RELEASED_SOLD', 'CLOSED')), ['one is sold and not paid'])
  t.same(wrongs(books([10, 0, 0], 'RELEASED_UNSOLD', 'PAID')), ['one is paid and its stock released'])
  t.same(wrongs(books([10, 0, 0], 'RELEASED_UNSOLD', 'CLOSED', true)), ['one is CLOSED and charged'])
  t.same(wrongs(books([8, 0, 2], 'RELEASED_SOLD', 'PAID', false)), ['one is paid and not charged'])
})
