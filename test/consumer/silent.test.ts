// The receiver's database vanishes, and its library waits for ever.
import t from 'tap'
import { receiver, type Database } from '../../src/consumer/consumer.ts'
import { until } from '../support/until.ts'
import { secret } from './databases.ts'

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

t.test(
  'an outage is told at its 1st, 10th and 100th failure, with longer pauses, and the next one again',
  async t => {
    const stop = new AbortController()
    let claims = 0
    let times: number[] = []
    const db: Database<unknown> = {
      dialect: 'postgres',
      query: async () => [],
      within: () => db,
      async begin(work) {
        claims++
        times.push(performance.now())
        if (claims === 107) stop.abort()
        if (claims !== 105) throw new Error(`failure ${claims}`)
        return await work(undefined)
      }
    }
    const told: string[] = []
    const onError = (err: unknown): void => void told.push((err as Error).message)
    const points = receiver({ secrets: [secret], db, consumer: 'points', onError })
    await points.run({ signal: stop.signal, pollMs: 0 })
    t.same(
      told,
      [1, 10, 100, 106].map(nth => `failure ${nth}`)
    )

    const slow = new AbortController()
    times = []
    const sending = points.run({ signal: slow.signal, pollMs: 20 })
    await until('there are five failures', () => times.length === 5)
    slow.abort()
    await sending
    const [first = 0, , , , fifth = 0] = times
    t.ok(fifth - first >= 20 + 40 + 80 + 160 - 10, `${fifth - first} ms`)
  }
)

t.test('an abort ends it while the database is silent, also if no more attempts are begun', async t => {
  for (const limitMs of [600_000, 5]) {
    const stop = new AbortController()
    const late: (() => void)[] = []
    const db: Database<unknown> = {
      dialect: 'postgres',
      query: async () => [],
      within: () => db,
      async begin(work) {
        await new Promise<void>(resolve => late.push(resolve))
        return await work(undefined)
      }
    }
    const told: unknown[] = []
    const onError = (err: unknown): void => void told.push(err)
    const points = receiver({ secrets: [secret], db, consumer: 'points', onError })
    const running = points.run({ signal: stop.signal, pollMs: 1, limitMs })
    const most = limitMs === 5 ? 3 : 1
    await until('the attempts wait', () => late.length === most)
    const before = told.length
    stop.abort()
    await running
    if (most === 1) t.equal(told.length, before, 'that is no failure')
    late.forEach(end => end())
    await new Promise(setImmediate)
    t.equal(late.length, most)
  }
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
    // The 10th failure in a row.
    if (++told < 2) return
    t.equal(claims, 3)
    isSilent = false
    late[0]?.()
  }
  const points = receiver({ secrets: [secret], db, consumer: 'points', onError })
  await points.run({ signal: stop.signal, pollMs: 1, limitMs: 5 })
  t.equal(claims, 4, 'and one more as soon as one has ended')
  late.forEach(end => end())
})
