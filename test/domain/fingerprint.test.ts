import t from 'tap'
import { fingerprint, firstLine } from '../../src/domain/fingerprint.ts'
import { latencyBounds, percentile } from '../../src/domain/counts.ts'
import { workedMs } from '../support/stopwatch.ts'

t.test('the first line of an answer says what is wrong, without numbers and ids', async t => {
  const lines: [text: string | null, line: string | null][] = [
    ['{"error":"stock 17 of order-4711 is 0"}', '{"error":"stock # of order-# is #"}'],
    ['\n\n  connect ECONNREFUSED 127.0.0.1:5432\n  at net.js', 'connect ECONNREFUSED #'],
    ['no row 0199a1b2-c3d4-7e5f-8a6b-0123456789ab', 'no row #'],
    ['token 5f3a9c0d77aa41e2 expired', 'token # expired'],
    ['the warehouse is closed', 'the warehouse is closed'],
    ['no-such-warehouse-here-or-there, key_0a_of-warehouse', 'no-such-warehouse-here-or-there, #'],
    ['', null],
    [' \n ', null],
    [null, null]
  ]
  for (const [text, line] of lines) t.equal(firstLine(text), line)
  t.equal(Array.from(firstLine('😀'.repeat(900)) ?? '').length, 200, 'cut between characters')
  t.notMatch(firstLine('a\0b'), /\0/, 'PostgreSQL could not hold it')
})

t.test('200 answers made to be slow are read at once', async t => {
  for (const unit of ['a-', '-a', 'a_', 'aaaaaaaaaaa-', '0:', '1-', '0123abcd-']) {
    const text = unit.repeat(2_000 / unit.length)
    const ms = workedMs(() => {
      for (let n = 0; n < 200; n++) firstLine(text)
    })
    t.ok(ms < 150, `${JSON.stringify(unit)}: ${ms} ms`)
  }
})

t.test('failures of one cause have one fingerprint; each member makes another', async t => {
  const one = {
    downstream: 'ads',
    reason: 'SEND_EXHAUSTED',
    statusCode: 500,
    line: firstLine('order 1 fails')
  }
  t.equal(fingerprint(one), fingerprint({ ...one, line: firstLine('order 22 fails') }))
  t.match(fingerprint(one), /^[0-9a-f]{16}$/)
  const others = [{ downstream: 'crm' }, { reason: 'REFUSED' }, { statusCode: 503 }, { line: null }].map(
    more => fingerprint({ ...one, ...more })
  )
  t.equal(new Set([fingerprint(one), ...others]).size, 5)
})

t.test('a percentile lies in the bucket that holds it', async t => {
  const histogram = latencyBounds.map(() => 0).concat(0)
  t.equal(percentile(histogram, 0.5), null)
  histogram[latencyBounds.indexOf(100)] = 98
  histogram[latencyBounds.indexOf(5_000)] = 2
  const [p50, p99] = [percentile(histogram, 0.5) ?? 0, percentile(histogram, 0.99) ?? 0]
  t.ok(p50 > 50 && p50 <= 100, String(p50))
  t.ok(p99 > 2_000 && p99 <= 5_000, String(p99))
  histogram[latencyBounds.length] = 10_000
  t.equal(percentile(histogram, 0.99), latencyBounds.at(-1), 'beyond all bounds only that is known')
})
