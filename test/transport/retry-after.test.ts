import t from 'tap'
import { retryAfter } from '../../src/transport/http/retry-after.ts'

const now = Date.UTC(2026, 10, 20, 10, 0, 0)
const hour = 3_600_000

t.test('D38 Retry-After is honoured up to an hour, and what makes no sense is ignored', async t => {
  const rows: [value: string | undefined, expected: number | undefined][] = [
    [undefined, undefined],
    ['120', 120_000],
    [' 7 ', 7_000],
    ['0', 0],
    ['7200', hour],
    ['86400', hour],
    ['86401', hour],
    ['1000000000', hour],
    ['1e9', undefined],
    ['-1', undefined],
    ['1.5', undefined],
    ['', undefined],
    ['9'.repeat(10_000), hour],
    ['Infinity', undefined],
    ['soon', undefined],
    ['Fri, 20 Nov 2026 10:02:00 GMT', 120_000],
    ['Fri, 20 Nov 2026 12:00:00 GMT', hour],
    ['Fri, 20 Nov 2026 09:59:59 GMT', undefined],
    ['Fri, 20 Nov 2099 10:00:00 GMT', hour],
    ['Friday, 20-Nov-26 10:02:00 GMT', 120_000],
    ['Friday, 20-Nov-99 10:02:00 GMT', undefined],
    ['Fri Nov 20 10:02:00 2026', 120_000],
    ['Sun Dec  6 08:49:37 2026', hour],
    ['Wed, 31 Nov 2026 10:00:00 GMT', undefined],
    ['Fri Nov 20 10:02:00 2026 GMT', undefined],
    ['Fri, 99 Nov 2026 10:00:00 GMT', undefined],
    ['2026-11-20T10:02:00Z', undefined]
  ]
  for (const [value, expected] of rows)
    t.equal(retryAfter(value, undefined, now), expected, String(value).slice(0, 40))
})

t.test('a downstream whose clock is an hour off asks for the same wait', async t => {
  t.equal(retryAfter('Fri, 20 Nov 2026 11:02:00 GMT', 'Fri, 20 Nov 2026 11:00:00 GMT', now), 120_000)
})
