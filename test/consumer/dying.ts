// A receiver process that kills itself once with SIGKILL. DIES names the place: after-commit, before-commit, or after-early (late work:
// after the commit of its transaction with the receipt, and before the receipt is sent).
import { existsSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import pg from 'pg'
import { fromPg, receiver } from '../../src/consumer/consumer.ts'

const { DATABASE_URL = '', SECRET_OF = '', PORT = '', DIES = '', MARK = '' } = process.env
const die = (place: string): void => {
  if (place !== DIES || existsSync(MARK)) return
  writeFileSync(MARK, '')
  process.kill(process.pid, 'SIGKILL')
}

const at = fromPg(new pg.Pool({ connectionString: DATABASE_URL }))
const isLate = DIES === 'after-early'
const db: typeof at = {
  ...at,
  async begin(work) {
    const result = await at.begin(async native => {
      const worked = await work(native)
      die('before-commit')
      return worked
    })
    die('after-commit')
    die('after-early')
    return result
  }
}
const points = receiver({
  secrets: [SECRET_OF],
  db,
  consumer: 'points',
  deadlineMs: isLate ? 50 : 30_000
})
const server = createServer(
  points.node(async (tx, task) => {
    const { points: count } = task.body as { points: number }
    await tx.query('update points set granted = granted + $1 where id = 1', [count])
    if (isLate) await tx.query('select pg_sleep(0.5)')
  })
)
server.listen(Number(PORT), '127.0.0.1')
// The receipt loop runs on `at`: its own transactions must not trigger `die`.
const receipts = receiver({ secrets: [SECRET_OF], db: at, consumer: 'points' })
if (!isLate || existsSync(MARK)) await receipts.run({ pollMs: 50 })
