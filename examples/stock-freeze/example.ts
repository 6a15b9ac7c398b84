// The story of this example: npm run example -- stock-freeze
import { setTimeout as pause } from 'node:timers/promises'
import { audit } from '../runner/audit.ts'
import type { Example } from '../runner/example.ts'
import type { Stage } from '../runner/stage.ts'
import { paidOf, readBooks, soldOf, underWay, wrongs } from './books.ts'
import type { OrderAnswer, Placed } from './messages.ts'
import { badCard } from './provider.ts'
import { orderTables, stockTables } from './tables.ts'

/** The number of customers at the same time. */
const atOnce = 4
const lookEveryMs = 100

/** 'pays late': pays when the time limit is about to end, so that either may come first. */
const habits = ['pays', 'has a bad card', 'never pays', 'pays late'] as const
type Habit = (typeof habits)[number]
const longMs = 3_600_000
const limitMs: Record<Habit, number> = {
  pays: longMs,
  'has a bad card': longMs,
  'never pays': 300,
  'pays late': 600
}

interface Ended extends OrderAnswer {
  orderId: string
  habit: Habit
}

/** Every third order is for lamps, which are scarce. */
function nthOrder(nth: number): { habit: Habit; order: Placed } {
  const habit = habits[nth % habits.length] ?? 'pays'
  const [sku, quantity] = [nth % 3 === 0 ? 'lamp' : 'book', 1 + (nth % 2)]
  return {
    habit,
    order: { orderId: `order-${nth}`, sku, quantity, cents: 1_900 * quantity, limitMs: limitMs[habit] }
  }
}

export const example: Example = {
  title: 'stock that is frozen for an order: sold when it is paid, released when it is not, in two databases',
  invariant: 'available + frozen + sold = initial, and what was sold is what was paid, at any moment',
  count: 24,
  async play(stage) {
    const shop = await openShop(stage)
    const ended: Ended[] = []
    const customer = async (nth: number): Promise<void> => {
      const { habit, order } = nthOrder(nth)
      const at = `${shop.orders}/orders`
      let now = await stage.call<OrderAnswer>(at, order)
      if (habit === 'pays late') await pause(limitMs[habit])
      if (habit !== 'never pays' && now.state === 'UNPAID')
        await stage.call(`${at}/${order.orderId}/pay`, {
          card: habit === 'has a bad card' ? badCard : 'good'
        })
      for (; now.state !== 'PAID' && now.state !== 'CLOSED'; await pause(lookEveryMs))
        now = await stage.call<OrderAnswer>(`${at}/${order.orderId}`)
      ended.push({ ...now, orderId: order.orderId, habit })
    }

    const auditing = audit(async () => wrongs(await shop.books()))
    await stage.work(stage.count, async (from, to) => {
      let next = from
      const line = async (): Promise<void> => {
        while (next <= to) await customer(next++)
      }
      await Promise.all(Array.from({ length: atOnce }, line))
      stage.step(`orders ${from} to ${to} have ended: ${shelvesOf(await shop.books())}`)
    })
    await stage.until('nothing is frozen any more', async () => underWay(await shop.books()).length === 0)
    const { looks, wrong } = await auditing.end()
    stage.step(`the books were added up ${looks} times while orders were under way`)
    for (const habit of habits)
      stage.step(
        `who ${habit}: ${tally(ended.filter(one => one.habit === habit).map(one => one.reason ?? one.state))}`
      )
    return [...wrong, ...(await check())]

    async function check(): Promise<string[]> {
      const books = await shop.books()
      const answeredPaid = ended.filter(one => one.state === 'PAID').map(one => one.orderId)
      const paid = books.orders.filter(one => one.state === 'PAID').map(one => one.orderId)
      const { tasks: failed } = await stage.call<{ tasks: unknown[] }>(`${shop.ackbox}/tasks?status=FAILED`)
      stage.step(`${soldOf(books)} sold, ${paidOf(books)} paid: ${shelvesOf(books)}`)
      return [
        ...wrongs(books),
        ...(soldOf(books) === paidOf(books) ? [] : [`${soldOf(books)} are sold, and ${paidOf(books)} paid`]),
        ...(String(answeredPaid.toSorted()) === String(paid.toSorted())
          ? []
          : ['what is paid is not what customers were told']),
        ...ended
          .filter(
            one => one.state === 'PAID' && (one.habit === 'never pays' || one.habit === 'has a bad card')
          )
          .map(one => `${one.orderId} is paid by who ${one.habit}`),
        ...ended
          .filter(one => one.habit === 'pays' && one.state === 'CLOSED' && one.reason !== 'OUT_OF_STOCK')
          .map(one => `${one.orderId} was to be paid, and is closed: ${one.reason}`),
        ...(failed.length === 0 ? [] : [`${failed.length} deliveries failed`])
      ]
    }
  }
}

const shelvesOf = ({ shelves }: Awaited<ReturnType<typeof readBooks>>): string =>
  shelves
    .map(
      one =>
        `${one.sku} ${one.available} available + ${one.frozen} frozen + ${one.sold} sold = ${one.initial}`
    )
    .join(', ')

function tally(words: readonly string[]): string {
  const counts = new Map<string, number>()
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1)
  return [...counts].map(([word, count]) => `${count} ${word}`).join(', ')
}

async function openShop(stage: Stage) {
  const [stockPort, ordersPort] = [String(await stage.port()), String(await stage.port())]
  const [stock, orders] = [`http://127.0.0.1:${stockPort}`, `http://127.0.0.1:${ordersPort}`]
  const databases = {
    stock: await stage.database('stock', stockTables),
    orders: await stage.database('orders', orderTables)
  }
  const ackbox = await stage.ackbox({ STOCK_URL: stock, ORDERS_URL: orders })
  const program = (name: 'stock' | 'orders', port: string) =>
    stage.program(name, `${name}.js`, {
      DATABASE_URL: databases[name],
      PORT: port,
      ACKBOX_URL: ackbox,
      STOCK_URL: stock,
      SIGNING_SECRET: stage.secret(name)
    })
  const relay = (of: 'stock' | 'orders') =>
    stage.command(
      `relay-${of}`,
      ['ackbox', 'relay'],
      { ACKBOX_RELAY_FROM: databases[of], ACKBOX_URL: ackbox },
      /relay\.ready/
    )
  await Promise.all([
    program('stock', stockPort),
    program('orders', ordersPort),
    relay('stock'),
    relay('orders')
  ])
  const books = () =>
    readBooks(
      <Row>(query: string) => stage.rows<Row>('stock', query),
      <Row>(query: string) => stage.rows<Row>('orders', query)
    )
  return { orders, ackbox, books }
}
