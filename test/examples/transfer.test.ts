import t from 'tap'
import { sums, type BankBooks } from '../../examples/transfer/books.ts'
import { holds } from '../support/example.ts'

t.test('money between two banks arrives once, and the sum of both never changes', async t => {
  const lines = await holds(t, 'transfer', '--count', '20')
  const [, sent, refused] =
    /(\d+) transfers were sent, (\d+) refused; the banks hold 800000 of 800000/.exec(lines.join('\n')) ?? []
  t.equal(Number(sent) + Number(refused), 20)
  t.ok(Number(sent) > 0)
  t.ok(Number(refused) >= 4, 'every fifth is more than a bank lets go')
})

t.test('its books show money that is made, lost, or on its way', async t => {
  const at = (more: Partial<BankBooks> = {}): BankBooks => ({
    opening: 100,
    balance: 100,
    out: [],
    in: [],
    ...more
  })
  const seven = [{ transferId: 'one', cents: 7 }]
  const paid = at({ balance: 93, out: seven })
  t.same(sums(paid, at(), paid), { opening: 200, balances: 193, inFlight: 7, wrong: [] }, 'on its way')
  const arrived = at({ balance: 107, in: seven })
  t.same(sums(paid, arrived, paid), { opening: 200, balances: 200, inFlight: 0, wrong: [] }, 'arrived')
  t.match(
    sums(at(), arrived, paid),
    { balances: 200, wrong: { length: 0 } },
    'it left and arrived between two looks'
  )
  const twice = at({ balance: 114, in: [...seven, ...seven] })
  t.match(sums(paid, twice, paid).wrong, ['one arrived twice'])
  const debited = at({ balance: 86, out: [...seven, ...seven] })
  t.match(sums(debited, arrived, debited).wrong, ['one was debited twice'])
  t.match(
    sums(at(), arrived, at()).wrong,
    ['one arrived with 7 and never left'],
    'rolled back, and delivered'
  )
  t.match(sums(at({ balance: 93 }), at(), at({ balance: 93 })).wrong, [
    'accounts hold 93, and the ledger says 100'
  ])
})
