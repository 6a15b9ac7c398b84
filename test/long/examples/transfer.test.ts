import t from 'tap'
import { holds, killed } from '../../support/example.ts'

t.test('no money is made or lost between two banks, whichever of their programs is killed', async t => {
  const lines = await holds(t, 'transfer', '--count', '120', '--kill', '12')
  t.same(killed(lines), { ackbox: 4, 'bank-a': 4, 'bank-b': 4 })
})
