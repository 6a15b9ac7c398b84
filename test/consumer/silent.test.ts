// The receiver's database vanishes, and its library waits for ever.
import t from 'tap'
import { receiver, type Database } from '../../src/consumer/consumer.ts'
import { secret } from './databases.ts'

t.setTimeout(60_000)

t.test('receipts are sent on after a statement without an answer, and its late end does no harm', async t => {
  const stop = new AbortController()
  let claims = 0
  let endLate: ((err: Error) => void) | undefined
  const db: Database<unknown> = {
    dialect: 'postgres',
    query: async () => [],
    within: () => db,
    async begin(work) {
      if (++claims === 1)
        return await new Promise((_, reject) => {
          endLate = reject
        })
      stop.abort()
      return await work(undefined)
    }
  }
  const told: unknown[] = []
  const points = receiver({ secrets: [secret], db, consumer: 'points', onError: err => void told.push(err) })
  await points.run({ signal: stop.signal, pollMs: 20, limitMs: 100 })
  t.equal(claims, 2)
  endLate?.(new Error('Connection terminated unexpectedly'))
  await new Promise(setImmediate)
  t.match(told, [{ message: /took more than 100 ms/ }])
  t.equal(told.length, 1)
})

t.test('while the database is silent three attempts wait for it, and no more are begun', async t => {
  const stop = new AbortController()
  const late: (() => void)[] = []
  let isSilent = true
  let claims = 0
  const db: Database<unknown> = {
    dialect: 'postgres',
    query: async () => [],
    within: () => db,
    async begin(work) {
      claims++
      if (isSilent) await new Promise<void>(resolve => late.push(resolve))
      else stop.abort()
      return await work(undefined)
    }
  }
  let told = 0
  const onError = (): void => {
    if (++told < 6) return
    t.equal(claims, 3)
    isSilent = false
    late[0]?.()
  }
  const points = receiver({ secrets: [secret], db, consumer: 'points', onError })
  await points.run({ signal: stop.signal, pollMs: 1, limitMs: 5 })
  t.equal(claims, 4, 'and one more as soon as one has ended')
  late.forEach(end => end())
})
