import t from 'tap'
import { openReader, readPages, type Listed } from '../../src/ui/reader.ts'

/** Reads that stay open until `end` is called. */
function slow() {
  const open: ((value: string | Error) => void)[] = []
  const ask = () =>
    new Promise<string>((resolve, reject) => {
      open.push(value => (value instanceof Error ? reject(value) : resolve(value)))
    })
  const settled = () => new Promise(resolve => setImmediate(resolve))
  return {
    ask,
    running: () => open.length,
    async end(value: string | Error) {
      open.shift()?.(value)
      await settled()
    }
  }
}

t.test('a read that takes longer than the time between two is shown, and read again afterwards', async t => {
  const told: unknown[] = []
  const { ask, running, end } = slow()
  const reader = openReader(ask, one => told.push(one))
  void reader.read()
  for (let n = 0; n < 5; n++) void reader.read()
  t.equal(running(), 1, 'one at a time')
  await end('first')
  t.same(told, [{ value: 'first' }])
  t.equal(running(), 1, 'those asked for meanwhile are one')
  await end('second')
  t.equal(running(), 0)
  t.same(told, [{ value: 'first' }, { value: 'second' }])
})

t.test('an error is told, and the next read runs; who waits gets an answer asked for after it', async t => {
  const told: unknown[] = []
  const { ask, end } = slow()
  const reader = openReader(ask, one => told.push(one))
  void reader.read()
  let isThere = false
  const after = reader.read().then(() => {
    isThere = true
  })
  const away = new Error('away')
  await end(away)
  t.equal(isThere, false)
  await end('back')
  await after
  t.same(told, [{ error: away }, { value: 'back' }])
})

t.test('once stopped, what still comes is dropped and nothing is read any more', async t => {
  const told: unknown[] = []
  const { ask, running, end } = slow()
  const reader = openReader(ask, one => told.push(one))
  void reader.read()
  void reader.read()
  reader.stop()
  await end('late')
  t.equal(running(), 0)
  t.same(told, [])
})

t.test('all pages that are shown are read again, with as few questions as the API allows', async t => {
  const rows = Array.from({ length: 470 }, (_, n) => n)
  const asked: number[] = []
  const ask = async (cursor: string | undefined, limit: number): Promise<Listed<number>> => {
    asked.push(limit)
    const from = Number(cursor ?? 0)
    const next = from + limit
    return { rows: rows.slice(from, next), ...(next < rows.length ? { nextCursor: String(next) } : {}) }
  }
  t.same(await readPages(ask, 1, 50), { rows: rows.slice(0, 50), nextCursor: '50' })
  t.same(await readPages(ask, 5, 50), { rows: rows.slice(0, 250), nextCursor: '250' })
  const all = await readPages(ask, 10, 50)
  t.same([all.rows, all.nextCursor], [rows, undefined])
  t.same(asked, [50, 200, 50, 200, 200, 100])
})

t.test('a partial page counts as one, empty or not', async t => {
  let n = 0
  const ask = async (): Promise<Listed<number>> => ({ rows: [++n], nextCursor: 'x', partial: true })
  t.same(await readPages(ask, 2, 50), { rows: [1, 2], nextCursor: 'x', partial: true })
})
