import t from 'tap'
import { pace } from '../../src/flow/pace.ts'
import { asked } from '../support/asked.ts'
import { setup } from '../support/setup.ts'

/** Of so many deliveries of a backlog, in a row: how often the loop was looked at. */
async function looksAt(busy: number[], deliveries: number, isPosted = true): Promise<number> {
  let looks = 0
  const { posted, next } = pace(() => busy[looks++] ?? 0)
  if (isPosted) posted()
  for (let i = 0; i < deliveries; i++) await next()
  return looks
}

t.test('where nobody posts a backlog leaves at full speed', async t => {
  t.equal(await looksAt([1, 1, 1], 100, false), 0)
})

t.test('where somebody posts, every 25 look whether the event loop is free', async t => {
  t.equal(await looksAt([], 25), 1)
  t.equal(await looksAt([], 100), 4)
})

t.test('while the loop is busy they wait, but not for ever', async t => {
  t.equal(await looksAt([0.9, 0.8, 0.5], 10), 3)
  t.equal(
    await looksAt(
      Array.from({ length: 100 }, () => 1),
      10
    ),
    4
  )
})

t.test('who asks meanwhile waits behind', async t => {
  const order: number[] = []
  const { posted, next } = pace(() => 0)
  posted()
  const first = Promise.resolve(next()).then(() => order.push(1))
  for (let i = 0; i < 24; i++) t.equal(next(), undefined)
  const second = Promise.resolve(next()).then(() => order.push(2))
  await Promise.all([second, first])
  t.strictSame(order, [1, 2])
})

t.test('a backlog arrives while others post, all of it and once', async t => {
  const { accept, downstream, quiet } = await setup(t, { fresh: undefined })
  await accept.many(Array.from({ length: 300 }, () => asked()))
  await quiet()
  t.equal(downstream.requests.length, 300)
})
