import t from 'tap'
import { nextCheck, type CheckHistory } from '../../src/domain/retry-policy.ts'

const hour = 3_600_000
const young: CheckHistory = { answered: 0, unanswered: 0, ageMs: 35_000, checkAfterMs: 35_000 }
const middle = 0.5

t.test('a producer that does not know yet is asked again at its own interval', async t => {
  for (const answered of [0, 1, 13])
    t.same(nextCheck('UNKNOWN', { ...young, answered }, middle), { waitMs: 35_000, isStuck: false })
  const patient = { ...young, checkAfterMs: 6 * hour }
  t.same(nextCheck('UNKNOWN', patient, middle), { waitMs: 6 * hour, isStuck: false })
})

t.test(
  'one that does not answer is asked after 10 s, and twice as long each time, up to an hour',
  async t => {
    const waits = [0, 1, 2, 3, 8, 9, 1_000].map(
      unanswered => nextCheck('NONE', { ...young, unanswered }, middle).waitMs
    )
    t.same(waits, [10_000, 20_000, 40_000, 80_000, 2_560_000, hour, hour])
    t.equal(nextCheck('NONE', young, 0).waitMs, 9_000)
    t.ok(nextCheck('NONE', young, 0.999).waitMs < 11_000, 'within a tenth')
  }
)

t.test('after 15 times UNKNOWN, or a day, a person hears of it, and it is asked once an hour', async t => {
  const stuck = { waitMs: hour, isStuck: true }
  t.same(nextCheck('UNKNOWN', { ...young, answered: 14 }, middle), stuck)
  t.same(nextCheck('UNKNOWN', { ...young, ageMs: 24 * hour }, middle), stuck)
  t.same(nextCheck('NONE', { ...young, ageMs: 24 * hour }, middle), stuck)
  t.same(nextCheck('NONE', { ...young, answered: 15 }, middle), stuck)
  t.notOk(
    nextCheck('NONE', { ...young, answered: 14, unanswered: 500 }, middle).isStuck,
    'no answer is no UNKNOWN'
  )
})
