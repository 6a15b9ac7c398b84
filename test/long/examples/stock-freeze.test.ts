import t from 'tap'
import { holds, killed } from '../../support/example.ts'

t.test('no stock is lost or sold twice, whichever of the programs is killed', async t => {
  const lines = await holds(t, 'stock-freeze', '--count', '80', '--kill', '10')
  t.same(killed(lines), { ackbox: 2, stock: 2, orders: 2, 'relay-stock': 2, 'relay-orders': 2 })
})
