import t from 'tap'
import { parseSearch, redeliverFilter, withFilter } from '../../src/ui/search.ts'
import { only } from '../support/only.ts'

const now = new Date('2026-11-24T10:00:00.000Z')

t.test('the search box understands words, filters and times', async t => {
  const rows: [text: string, filter: Record<string, string>, word: string][] = [
    ['', {}, ''],
    ['order-7', {}, 'order-7'],
    [
      'status:failed code:order.paid downstream:ads',
      { status: 'FAILED', messageCode: 'order.paid', downstream: 'ads' },
      ''
    ],
    ['from:2h order-', { from: '2026-11-24T08:00:00.000Z' }, 'order-'],
    [
      'from:2026-11-23T00:00:00+08:00 to:15m',
      { from: '2026-11-22T16:00:00.000Z', to: '2026-11-24T09:45:00.000Z' },
      ''
    ],
    [
      'why:"connection refused" bizType:order bizKey:42',
      { lastReason: 'connection refused', bizType: 'order', bizKey: '42' },
      ''
    ],
    [
      '0193b3a0-0000-7000-8000-000000000001_ads',
      { webhookId: '0193b3a0-0000-7000-8000-000000000001_ads' },
      ''
    ],
    // A default taskNo contains colons.
    ['order.paid:vip:0123456789abcdef0123456789abcdef', {}, 'order.paid:vip:0123456789abcdef0123456789abcdef']
  ]
  for (const [text, filter, word] of rows) t.same(parseSearch(text, now), { filter, word, unknown: [] }, text)
  t.same(parseSearch('colour:"dark red"', now).unknown, ['colour'], 'what is no filter is said')
  t.match(parseSearch('state:FAILED', now), { unknown: only('state'), word: 'state:FAILED' })
  t.match(
    parseSearch('order:42', now, ['order']),
    { unknown: { length: 0 }, word: 'order:42' },
    'a code that there is'
  )
  t.same(parseSearch('bizKey:42', now).missing, { name: 'bizKey', needs: 'bizType' })
  t.equal(parseSearch('bizType:order bizKey:42', now).missing, undefined)
})

t.test('what a search shows is what a redelivery of all that match takes', async t => {
  const filterOf = (text: string) => redeliverFilter(parseSearch(text, now), now)
  t.same(filterOf('status:FAILED code:order.paid'), {
    from: '2026-11-23T10:00:00.000Z',
    messageCode: 'order.paid'
  })
  t.same(filterOf('from:2h to:1h order-'), {
    from: '2026-11-24T08:00:00.000Z',
    to: '2026-11-24T09:00:00.000Z',
    taskNoPrefix: 'order-'
  })
  t.match(filterOf('to:1h'), { from: '2026-11-23T09:00:00.000Z' })
  t.same(filterOf('bizType:order bizKey:42'), { bizType: 'order', bizKey: '42' }, 'of all times, as the list')
  for (const none of ['status:HANDLED', 'bizKey:42', '0193b3a0-0000-7000-8000-000000000001_ads'])
    t.equal(filterOf(none), undefined, none)
})

t.test('a suggestion replaces what was said of the same filter', async t => {
  t.equal(withFilter('status:FAILED order-7', 'status', 'HANDLED'), 'order-7 status:HANDLED')
  t.equal(withFilter('', 'why', 'connection refused'), 'why:"connection refused"')
})
