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

t.test('while somebody posts a backlog waits, and goes on when the last answer has left', async t => {
  const never = () => setTimeout(() => {}, 0)
  const one = pace(() => 0, never)
  const written = [posting(one), posting(one)]
  await waitsOf(one, 1)
  let gone = false
  const wait = Promise.resolve(one.next()).then(() => (gone = true))
  for (const write of written) {
    await new Promise(resolve => setTimeout(resolve, 20))
    t.equal(gone, false)
    write()
  }
  await wait
})

t.test('a backlog that others post beside all the time still goes on', async t => {
  let now = 0
  const waited: number[] = []
  const one = pace(
    () => now,
    (done, ms) => {
      waited.push(ms)
      now += ms
      return setTimeout(done, 0)
    }
  )
  posting(one)
  const wait = () => waitsOf(one, 2)
  await wait()
  t.strictSame(waited, [10], 'at first it waits 10 ms')
  await wait()
  t.strictSame(waited, [10], 'then it goes on')
  now += 2
  await wait()
  t.strictSame(waited, [10, 6], 'it waits 3 ms for each that it went on')
  now += 10
  await wait()
  t.strictSame(waited, [10, 6, 10], 'but no longer than at first')
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
