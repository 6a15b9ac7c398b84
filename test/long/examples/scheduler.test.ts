import t from 'tap'
import { holds, killed } from '../../support/example.ts'

t.test('the work of each tick is done once, whichever of its programs is killed', async t => {
  const lines = await holds(t, 'scheduler', '--count', '40', '--kill', '10')
  t.same(killed(lines), { ackbox: 2, billing: 2, 'scheduler-1': 2, 'scheduler-2': 2, 'scheduler-3': 2 })
})
