import t from 'tap'
import { countDownstreams } from '../../src/db/lists.ts'
import { standing } from '../support/rows.ts'
import { testDb } from '../support/postgres.ts'

t.test(
  'I35: the counts that operators see are those of the rows, in every phase and by downstream',
  async t => {
    const { sql, reads } = await testDb(t)
    const places = [
      'WAITING',
      'IN_FLIGHT',
      'AWAITING_RECEIPT',
      'HANDLED',
      'FAILED',
      'DELETED',
      'BLOCKED'
    ] as const
    for (const [d, downstream] of ['warehouse', 'points'].entries()) {
      for (const [p, state] of places.entries()) {
        // Each count is a different number, so that a mixed-up count is noticed.
        for (let i = 0; i <= p + d * 2; i++)
          await standing(sql, { state, attempt: 1, triesLeft: 9, lost: 0, roundFrom: 1 }, { downstream })
      }
    }
    // No handler names points any more, but it has FAILED deliveries.
    const seen = await countDownstreams(reads, ['warehouse', 'unused'])
    for (const { name, waiting, inFlight, awaitingReceipt, blocked, failed } of seen) {
      const rows = await sql<{ status: number; phase: string | null }[]>`
      select status, phase from delivery where downstream = ${name}`
      const count = (word: string) => rows.filter(row => row.phase === word).length
      t.same(
        { waiting, inFlight, awaitingReceipt, blocked, failed },
        {
          waiting: count('WAITING'),
          inFlight: count('IN_FLIGHT'),
          awaitingReceipt: count('AWAITING_RECEIPT'),
          blocked: count('BLOCKED'),
          failed: rows.filter(row => row.status === 2).length
        },
        name
      )
    }
    t.same(
      seen.map(one => [one.name, one.waiting, one.failed]),
      [
        ['points', 3, 7],
        ['unused', 0, 0],
        ['warehouse', 1, 5]
      ]
    )
  }
)

t.test('the oldest due is the one that waits longest, not what is on its way or due later', async t => {
  const { sql, reads } = await testDb(t)
  const at = { attempt: 1, triesLeft: 9, lost: 0, roundFrom: 1 }
  await standing(sql, { state: 'WAITING', ...at }, { inMs: 60_000 })
  await standing(sql, { state: 'IN_FLIGHT', ...at }, { inMs: -90_000 })
  const oldest = async () => (await countDownstreams(reads, ['warehouse']))[0]?.oldestDueAt
  t.equal(await oldest(), null)
  await standing(sql, { state: 'WAITING', ...at }, { inMs: -1_000 })
  const id = await standing(sql, { state: 'WAITING', ...at }, { inMs: -30_000 })
  const [row] = await sql<{ due: Date }[]>`select next_action_at as due from delivery where task_id = ${id}`
  t.same(await oldest(), row?.due)
})
