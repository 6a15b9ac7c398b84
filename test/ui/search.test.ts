import t from 'tap'
import { isSearched, parseSearch, redeliverFilter, withFilter } from '../../src/ui/search.ts'
import { only } from '../support/only.ts'

// Local time is 8 hours ahead of UTC.
process.env['TZ'] = 'Asia/Shanghai'
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
  for (const [text, filter, word] of rows)
    t.same(parseSearch(text, now), { filter, word, problems: [] }, text)
  t.match(parseSearch('state:FAILED', now), {
    problems: only({ code: 'UNKNOWN', name: 'state', isWord: true }),
    word: 'state:FAILED'
  })
  t.match(
    parseSearch('order:42', now, ['order']),
    { problems: { length: 0 }, word: 'order:42' },
    'a code that there is'
  )
  t.same(parseSearch('order:', now).problems, [], 'the beginning of a taskNo')
})

t.test('what is not understood is named, and nothing is redelivered for it', async t => {
  const rows: [text: string, problem: object][] = [
    ['status:FAILED wyh:"read ECONNRESET"', { code: 'UNKNOWN', name: 'wyh', isWord: false }],
    ['order-1 order-2', { code: 'SECOND_WORD', word: 'order-2' }],
    ['status:FAILED status:HANDLED', { code: 'TWICE', name: 'status' }],
    ['code:order.paid messageCode:order.sent', { code: 'TWICE', name: 'messageCode' }],
    ['downstream:""', { code: 'NO_VALUE', name: 'downstream' }],
    ['downstream:', { code: 'NO_VALUE', name: 'downstream' }],
    ['from:yesterday', { code: 'NO_TIME', text: 'from:yesterday' }],
    ['why:"read ECONNRESET', { code: 'OPEN_QUOTE', text: 'why:"read ECONNRESET' }],
    ['bizKey:42', { code: 'MISSING', name: 'bizKey', needs: 'bizType' }]
  ]
  for (const [text, problem] of rows) {
    const search = parseSearch(text, now)
    t.same(search.problems, [problem], text)
    t.equal(isSearched(search), false, text)
    t.equal(redeliverFilter(search, now), undefined, text)
  }
  const mayBeTaskNo = parseSearch('state:FAILED', now)
  t.equal(isSearched(mayBeTaskNo), true, 'a taskNo can look like this')
  t.equal(redeliverFilter(mayBeTaskNo, now), undefined)
})

t.test(
  'a value with spaces, quotes and backslashes is the same after it was written into a search',
  async t => {
    for (const value of [
      'order 42',
      '12" pipe',
      'C:\\"a b"\\',
      '\\',
      '"',
      'a"b',
      'status:FAILED',
      '订单 42'
    ]) {
      const text = withFilter(withFilter('', 'bizType', value), 'bizKey', value)
      t.same(
        parseSearch(text, now),
        { filter: { bizType: value, bizKey: value }, word: '', problems: [] },
        text
      )
      t.equal(withFilter(text, 'bizType', 'other'), `${withFilter('', 'bizKey', value)} bizType:other`)
    }
    t.match(parseSearch('why:"C:\\temp"', now).filter, { lastReason: 'C:\\temp' })
  }
)

t.test('a time is local as the clocks of the page, and what is no time is refused', async t => {
  const fromOf = (text: string) => parseSearch(`from:${text}`, now).filter['from']
  const rows: [text: string, at: string][] = [
    ['2026-11-27', '2026-11-26T16:00:00.000Z'],
    ['2026-11-27T08:00', '2026-11-27T00:00:00.000Z'],
    ['"2026-11-27 08:00:30"', '2026-11-27T00:00:30.000Z'],
    ['2026-11-27T08:00:30.5Z', '2026-11-27T08:00:30.500Z'],
    ['2026-11-27T08:00-05:00', '2026-11-27T13:00:00.000Z'],
    ['2028-02-29', '2028-02-28T16:00:00.000Z'],
    ['1w', '2026-11-17T10:00:00.000Z']
  ]
  for (const [text, at] of rows) t.equal(fromOf(text), at, text)
  const none =
    '2 10 2h30m 1.5h 2H 11/27/2026 2026-11 2026-02-30 2026-13-01 2026-11-27T25:00 2026-11-27T08 20261127 Friday'
  for (const text of none.split(' ')) {
    t.same(parseSearch(`from:${text}`, now).problems, [{ code: 'NO_TIME', text: `from:${text}` }], text)
    t.equal(fromOf(text), undefined, text)
  }
})

t.test('what a search shows is what a redelivery of all that match takes', async t => {
  const filterOf = (text: string) => redeliverFilter(parseSearch(text, now), now)
  t.same(
    filterOf('status:FAILED code:order.paid'),
    { messageCode: 'order.paid' },
    'of all times, as the list'
  )
  t.same(filterOf('code:order.paid'), { from: '2026-11-23T10:00:00.000Z', messageCode: 'order.paid' })
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
  t.equal(withFilter('messageCode:a', 'code', 'b'), 'code:b')
  t.equal(withFilter('', 'why', 'connection refused'), 'why:"connection refused"')
})
