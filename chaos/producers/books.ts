// The producers' own tables at the end, and the rows that still wait in their outboxes.
import type { RowDataPacket } from 'mysql2/promise'
import { pause } from '../client.ts'
import type { Way } from './plan.ts'
import type { Stand } from './stand.ts'

/** A committed business row. Its producer may not know that it was committed. */
export interface Order {
  taskNo: string
  way: Way
  messageCode: string
  body: string
  /** taskNos of the prerequisites of its task. */
  after: string[]
}

interface OrderRow {
  task_no: string
  way: Way
  message_code: string
  body: string
  waits_for: string
}

/** Called after the producers have ended. The backend alone decides about a COMMIT that was sent, so it must have ended too. */
export async function readOrders({ ackboxDb, shopDb, mariadb }: Stand): Promise<Order[]> {
  for (const { sql } of [ackboxDb, shopDb])
    for (;;) {
      const [row] = await sql<[{ n: number }]>`
        select count(*)::int as n from pg_stat_activity where application_name = 'shop'`
      if (row.n === 0) break
      await pause(100)
    }
  // An idle connection of the run is asleep. The connection of a killed producer rolls back or ends.
  const busy = `select count(*) as n from information_schema.innodb_trx t join information_schema.processlist p
    on p.id = t.trx_mysql_thread_id where p.command <> 'Sleep'`
  while (Number((await mariadb.pool.query<RowDataPacket[]>(busy))[0][0]?.['n']) > 0) await pause(100)
  const [rows] = await mariadb.pool.query<RowDataPacket[]>('select * from shop_order')
  const all = [
    ...(await ackboxDb.sql<OrderRow[]>`select * from shop.shop_order`),
    ...(await shopDb.sql<OrderRow[]>`select * from shop_order`),
    ...(rows as OrderRow[])
  ]
  return all.map(row => ({
    taskNo: row.task_no,
    way: row.way,
    messageCode: row.message_code,
    body: row.body,
    after: JSON.parse(row.waits_for) as string[]
  }))
}

/** What the shop shows while it posts its rest: all orders in its PostgreSQL, and those whose tasks are not posted yet. */
export async function readShop({ shopDb }: Stand): Promise<{ orders: number; unposted: number }> {
  const [row] = await shopDb.sql<[{ orders: number; unposted: number }]>`
    select count(*)::int as orders, (count(*) filter (where way = 'post' and not posted))::int as unposted from shop_order`
  return row
}

/** taskNos of rows that still wait, and of rows that a relay moved to the rejected ones. */
export async function readOutboxes({ ackboxDb, shopDb, mariadb }: Stand): Promise<{
  waiting: string[]
  rejected: string[]
}> {
  const numbers = (rows: readonly { task_no: string }[]) => rows.map(row => row.task_no)
  const inMariadb = async (table: string) =>
    numbers(
      (await mariadb.pool.query<RowDataPacket[]>(`select task_no from ${table}`))[0] as { task_no: string }[]
    )
  const [own, shop, shopRejected] = await Promise.all([
    ackboxDb.sql<{ task_no: string }[]>`select task_no from outbox`,
    shopDb.sql<{ task_no: string }[]>`select task_no from ackbox_outbox`,
    shopDb.sql<{ task_no: string }[]>`select task_no from ackbox_outbox_rejected`
  ])
  return {
    waiting: [...numbers(own), ...numbers(shop), ...(await inMariadb('ackbox_outbox'))],
    rejected: [...numbers(shopRejected), ...(await inMariadb('ackbox_outbox_rejected'))]
  }
}
