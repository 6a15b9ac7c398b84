import t from 'tap'
import { holds } from '../support/example.ts'

t.test('each payment is booked once and signed once, and signed after it was booked', async t => {
  const lines = await holds(t, 'pay-callback')
  t.ok(lines.some(line => line.endsWith('30 payments, 30 bookings, 30 signatures')))
})
