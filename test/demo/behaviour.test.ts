import t from 'tap'
import { behaviour, type ReceivedAttempt } from '../../src/demo/behaviour.ts'
import { only } from '../support/only.ts'

const asked = (over: Partial<ReceivedAttempt> = {}): ReceivedAttempt => ({
  downstream: 'warehouse',
  owesReceipt: true,
  kind: undefined,
  webhookId: 'w-1',
  attempt: 1,
  ...over
})
const many = (over: Partial<ReceivedAttempt>) =>
  Array.from({ length: 2_000 }, (_, i) => behaviour(asked({ webhookId: `w-${i}`, ...over }), 1))

t.test('the same attempt is treated the same, whatever came before it', async t => {
  t.same(behaviour(asked({ webhookId: 'w-9' }), 7), behaviour(asked({ webhookId: 'w-9' }), 7))
  const seeds = [1, 2].map(seed =>
    JSON.stringify(Array.from({ length: 50 }, (_, i) => behaviour(asked({ webhookId: `w-${i}` }), seed)))
  )
  t.not(seeds[0], seeds[1], 'another seed, another run')
})

t.test(
  'an ordinary task meets trouble about one time in twenty, and none from its third attempt on',
  async t => {
    const failed = many({}).filter(
      ({ status, body }) => status !== 200 || JSON.stringify(body) !== '{"code":0}'
    ).length
    t.ok(failed > 40 && failed < 180, `${failed} of 2000`)
    t.ok(
      many({ attempt: 3 }).every(
        ({ status, body }) => status === 200 && JSON.stringify(body) === '{"code":0}'
      )
    )
  }
)

t.test('who owes a receipt brings one: early, late, twice or in the answer, but always HANDLED', async t => {
  const planned = many({ attempt: 3 })
  t.ok(
    planned.every(({ headers, receipts }) =>
      headers
        ? receipts.length === 0
        : receipts.every(({ result }) => result === 'HANDLED') && receipts.length > 0
    )
  )
  t.ok(planned.some(({ headers }) => headers?.['ackbox-result'] === 'HANDLED'))
  t.ok(planned.some(({ receipts }) => receipts.length === 2))
  t.ok(planned.some(({ receipts }) => (receipts[0]?.afterMs ?? 0) < 0))
})

t.test('who owes none brings none', async t => {
  t.ok(many({ owesReceipt: false }).every(({ receipts, headers }) => receipts.length === 0 && !headers))
})

t.test('each kind of trouble on purpose does what it is for', async t => {
  const first = (kind: NonNullable<ReceivedAttempt['kind']>, attempt = 1) =>
    behaviour(asked({ kind, attempt }), 1)
  t.equal(first('POISON', 50).status, 503)
  t.equal(first('REFUSE').status, 410)
  t.match(first('SILENT', 9), { status: 200, receipts: { length: 0 } })
  t.match(first('BROKEN').receipts, only({ result: 'FAILED' }))
  t.match(first('AGAIN').receipts, only({ result: 'RETRY' }))
  t.match(first('SHORT').receipts, only({ result: 'HANDLED', data: { short: true } }))
  t.match(first('LATE').receipts, only({ result: 'HANDLED', afterMs: 4_500 }))
  for (const kind of ['AGAIN', 'SHORT', 'LATE'] as const) {
    const second = first(kind, 2)
    t.ok(
      second.headers || second.receipts.every(({ result, data }) => result === 'HANDLED' && !data),
      `${kind} is handled the second time`
    )
  }
})
