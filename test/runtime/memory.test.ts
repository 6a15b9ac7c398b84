// What has ended must leave the memory with the young objects (docs/decisions.md): kept until a full collection it is copied
// twice and made old, at thousands a second.
import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t, { type Test } from 'tap'
import { z } from 'zod'
import type { LoadedDelivery } from '../../src/db/deliveries.ts'
import { LazyHookContext } from '../../src/delivery/hooks.ts'
import type { LoadedHandler } from '../../src/handler/define.ts'
import { deadlines, type Due } from '../../src/transport/deadlines.ts'
import { testDb } from '../support/postgres.ts'

setFlagsFromString('--expose-gc')
const gc = runInNewContext('gc') as (options: { type: 'minor' }) => void
const oldBytes = (): number =>
  getHeapSpaceStatistics().reduce(
    (sum, { space_name, space_used_size }) => sum + (space_name === 'old_space' ? space_used_size : 0),
    0
  )

const times = 400
const payloadBytes = 20_000
const payload = (): string => Buffer.alloc(payloadBytes, 'x').toString('latin1')

/** The part of what went through `each` that was made old, 0 to 1. */
async function madeOld(each: (payload: string, index: number) => unknown): Promise<number> {
  for (let index = 0; index < times; index++) await each(payload(), index)
  gc({ type: 'minor' })
  gc({ type: 'minor' })
  let made = 0
  let before = oldBytes()
  for (let index = 1; index <= times; index++) {
    await each(payload(), times + index)
    if (index % 20 > 0) continue
    gc({ type: 'minor' })
    // Less than before is a full collection in between: it frees what was made old earlier.
    made += Math.max(oldBytes() - before, 0)
    before = oldBytes()
  }
  return made / (times * payloadBytes)
}

/** Calls `leave` for each that `enter` has returned, five later. */
function inFlight<T>(enter: (payload: string, index: number) => T, leave: (one: T) => void) {
  const open: T[] = []
  return (payload: string, index: number): void => {
    open.push(enter(payload, index))
    if (open.length > 5) leave(open.shift() as T)
  }
}

const less = (t: Test, a: number, b: number): void => {
  t.ok(a < b, `${a.toFixed(3)} < ${b.toFixed(3)}`)
}

t.test('the measure itself: what a Set holds for a while is made old, what nobody holds is not', async t => {
  const set = new Set<{ payload: string }>()
  const held = inFlight(
    payload => {
      const one = { payload }
      set.add(one)
      return one
    },
    one => set.delete(one)
  )
  less(t, 0.08, await madeOld(held))
  less(t, await madeOld(() => {}), 0.02)
})

t.test('deadlines of what is over', async t => {
  const clock = deadlines()
  const signal = new AbortController().signal
  const over = inFlight(
    payload => {
      const due: Due & { payload: string } = {
        due: performance.now() + 1_000,
        signal,
        place: -1,
        payload,
        expire: () => clock.delete(due)
      }
      clock.add(due)
      return due
    },
    due => clock.delete(due)
  )
  less(t, await madeOld(over), 0.06)
})

t.test('what hooks were told', async t => {
  const schema = z.strictObject({ text: z.string() })
  const handlers = new Map([['order.paid', { body: schema } as unknown as LoadedHandler]])
  const tell = (payload: string, index: number) => {
    const task = {
      id: `task-${index}`,
      messageCode: 'order.paid',
      messageBody: JSON.stringify({ text: payload })
    }
    const told = new LazyHookContext(handlers, {
      task,
      downstream: 'warehouse',
      attempt: 1
    } as LoadedDelivery)
    return told.body ? told : undefined
  }
  less(t, await madeOld(inFlight(tell, () => {})), 0.06)
  // Else as a literal: this is why it is a class.
  const asLiteral = inFlight(
    payload => ({
      get body() {
        return payload
      }
    }),
    () => {}
  )
  less(t, 0.5, await madeOld(asLiteral))
})

t.test('statements that were answered', async t => {
  const { sql } = await testDb(t, { max: 1 })
  less(t, await madeOld(payload => sql`select length(${payload}::text)`), 0.3)
})
