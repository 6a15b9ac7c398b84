// The samples inside the database: what they find, and what they may not keep to themselves.
import t from 'tap'
import type postgres from 'postgres'
import type { InsideFinding } from '../../chaos/history.ts'
import { lookInside } from '../../chaos/inside.ts'

/** Each answer is that of one sample. The look ends with the last. */
function look(...answers: (object[] | Error)[]) {
  const stop = new AbortController()
  const findings: InsideFinding[] = []
  const sql = (): Promise<object[]> => {
    const answer = answers.shift() ?? []
    if (answers.length === 0) stop.abort()
    return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer)
  }
  const fake = Object.assign(sql, { unsafe: async () => [] })
  const samples = lookInside(fake as unknown as postgres.Sql, stop.signal, findings)
  return { samples, findings }
}

const row = { task_no: 'a', downstream: 'plain', attempt: 1, orphan: false }
const failure = (code: string): Error => Object.assign(new Error(code), { code })

t.test('an orphan and an attempt that fell are found', async t => {
  const { samples, findings } = look([{ ...row, attempt: 2 }], [{ ...row, orphan: true }])
  t.equal(await samples, 2)
  t.match(findings, [
    { invariant: 'I32', taskNo: 'a' },
    { invariant: 'I10', taskNo: 'a' }
  ])
})

t.test('a server that is down gives no sample; a query that is wrong fails the run', async t => {
  const down = ['ECONNREFUSED', 'CONNECTION_CLOSED', '57P03'].map(failure)
  t.equal(await look(...down, [row]).samples, 1)
  t.equal(await look([], [row]).samples, 1, 'a sample without deliveries shows nothing')
  for (const code of ['42703', '42P01']) await t.rejects(look(failure(code)).samples, { code })
})
