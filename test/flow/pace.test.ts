import t from 'tap'
import { pace } from '../../src/flow/pace.ts'
import { asked } from '../support/asked.ts'
import { setup } from '../support/setup.ts'

/** Somebody posts, and waits until the function is called. */
function posting(to: ReturnType<typeof pace>, deliveries = 1): () => void {
  let written = (): void => {}
  to.posting(new Promise<void>(resolve => (written = resolve)), deliveries)
  return () => written()
}

/** Of so many deliveries of a backlog, in a row: how many had to wait, if only for a turn of the event loop. */
async function waitsOf({ next }: ReturnType<typeof pace>, deliveries: number): Promise<number> {
  let waits = 0
  for (let i = 0; i < deliveries; i++) {
    const wait = next()
    if (wait) waits++
    await wait
  }
  return waits
}

t.test('where nobody posts a backlog leaves in large parts', async t => {
  t.equal(await waitsOf(pace(), 100), 4)
})

t.test('where somebody posted just now, in small ones', async t => {
  const one = pace()
  posting(one)()
  t.equal(await waitsOf(one, 100), 50)
})

t.test('while somebody posts a backlog waits, and goes on when the answer has left', async t => {
  const one = pace(() => 0)
  const written = posting(one)
  await waitsOf(one, 1)
  let gone = false
  const wait = Promise.resolve(one.next()).then(() => (gone = true))
  await new Promise(resolve => setTimeout(resolve, 20))
  t.equal(gone, false)
  written()
  await wait
})

t.test('a backlog that others post beside all the time still goes on', async t => {
  let now = 0
  const one = pace(() => now)
  posting(one)
  const waited: number[] = []
  const wait = async () => {
    await waitsOf(one, 1)
    let over = false
    const from = now
    const asked = Promise.resolve(one.next()).then(() => (over = true))
    for (; !over; now++) await new Promise(resolve => setTimeout(resolve, 2))
    await asked
    waited.push(now - from)
  }
  await wait()
  await wait()
  now += 10
  await wait()
  const [first = 0, second = 0, third = 0] = waited
  t.ok(first >= 9 && first <= 13, `at first it waits 10 ms, took ${first}`)
  t.ok(second <= 7, `then less, took ${second}`)
  t.ok(third >= 9 && third <= 13, `after it went on for 10 ms as long as at first, took ${third}`)
})

t.test('a backlog that grows all the same waits for nobody', async t => {
  let at = 0
  const one = pace(() => at)
  const first = posting(one, 100)
  for (let i = 0; i < 150; i++) void one.next()
  t.ok(one.isYielding())
  at += 200
  await waitsOf(one, 49)
  t.notOk(one.isYielding(), 'fewer than twice as many left')
  const second = posting(one, 100)
  for (let i = 0; i < 250; i++) await one.next()
  at += 200
  void one.next()
  t.ok(one.isYielding())
  first()
  second()
})

t.test('who asks meanwhile waits behind', async t => {
  const one = pace()
  posting(one)()
  const order: number[] = []
  t.equal(one.next(), undefined)
  const first = Promise.resolve(one.next()).then(() => order.push(1))
  t.equal(one.next(), undefined)
  const second = Promise.resolve(one.next()).then(() => order.push(2))
  await Promise.all([second, first])
  t.strictSame(order, [1, 2])
})

t.test('who posts beside a backlog has one statement of ours beside them, else many', async t => {
  let at = 0
  const one = pace(() => at)
  let [running, most] = [0, 0]
  const statement = async () => {
    most = Math.max(most, ++running)
    await new Promise(resolve => setTimeout(resolve, 5))
    running--
  }
  const mostOf = async (asked: number): Promise<number> => {
    most = 0
    await Promise.all(Array.from({ length: asked }, () => one.ask(statement)))
    return most
  }
  t.equal(await mostOf(3), 3, 'neither')
  posting(one)
  t.notOk(one.isYielding())
  t.equal(await mostOf(3), 3, 'no backlog')
  void one.next()
  t.ok(one.isYielding())
  t.equal(await mostOf(3), 1)
  const failed = one.ask(() => Promise.reject(new Error('no')))
  await Promise.all([t.rejects(failed, { message: 'no' }), one.ask(statement)])
  at += 1_000
  t.notOk(one.isYielding())
  t.equal(await mostOf(3), 3, 'the backlog is over')
})

t.test('a backlog arrives while others post, all of it and once', async t => {
  const { accept, downstream, quiet } = await setup(t, { fresh: undefined })
  await accept.many(Array.from({ length: 300 }, () => asked()))
  await quiet()
  t.equal(downstream.requests.length, 300)
})
