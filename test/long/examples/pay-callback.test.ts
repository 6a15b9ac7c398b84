import t from 'tap'
import { holds, killed } from '../../support/example.ts'

t.test('each payment is booked once and then signed once, whichever of its programs is killed', async t => {
  const lines = await holds(t, 'pay-callback', '--count', '60', '--kill', '15')
  t.same(killed(lines), { ackbox: 3, orders: 3, contracts: 3, gateway: 3, relay: 3 })
  t.ok(lines.some(line => line.endsWith('60 payments, 60 bookings, 60 signatures')))
})
