// A receiver's own database with a table of points, on a pool of `pg` or of `mysql2`. And requests, signed as Ackbox signs them.
import { randomUUID } from 'node:crypto'
import mysql from 'mysql2/promise'
import { Webhook } from 'standardwebhooks'
import type { Test } from 'tap'
import { ddl, fromMysql2, fromPg, type Database, type Row } from '../../src/consumer/consumer.ts'
import { testMariadb } from '../support/mariadb.ts'
import { pgPool } from '../support/pg-pool.ts'
import { emptyDb } from '../support/postgres.ts'

export interface Bank {
  url: string
  db: Database<unknown>
  /** Runs a statement of the receiver in its transaction. */
  run(native: unknown, text: string): Promise<unknown>
  select(text: string): Promise<readonly Row[]>
  granted(): Promise<number>
}

export const grant = 'update points set granted = granted + 7 where id = 1'
const points =
  'create table points (id int primary key, granted int not null); insert into points values (1, 0)'

export async function postgresBank(t: Test): Promise<Bank> {
  const url = await emptyDb(t)
  const pool = pgPool(url)
  t.teardown(() => pool.end())
  await pool.query(ddl.postgres + ddl.postgres + points)
  return bank(url, fromPg(pool), async text => (await pool.query<Row>(text)).rows)
}

/** Undefined if there is no MariaDB. The test is then skipped. */
export async function mariadbBank(t: Test): Promise<Bank | undefined> {
  const mariadb = await testMariadb(t)
  if (!mariadb) return undefined
  await mariadb.pool.query(ddl.mysql + ddl.mysql + points)
  const pool = mysql.createPool({ uri: mariadb.url, connectionLimit: 12 })
  t.teardown(() => pool.end())
  return bank(mariadb.url, fromMysql2(pool), async text => (await pool.query(text))[0] as Row[])
}

function bank(url: string, db: Database<unknown>, select: Bank['select']): Bank {
  return {
    url,
    db,
    run: (native, text) => (native as { query(text: string): Promise<unknown> }).query(text),
    select,
    granted: async () => Number((await select('select granted from points'))[0]?.['granted'])
  }
}

export const secret = 'whsec_' + Buffer.from('a secret of thirty-two bytes, so').toString('base64')

export interface Signed {
  headers: Record<string, string>
  body: Buffer
}

/** A request for one delivery, as Ackbox sends it. */
export function signed(id: string, more: Record<string, string> = {}, body = '{"points":7}'): Signed {
  const at = new Date()
  return {
    headers: {
      'content-type': 'application/json',
      'webhook-id': id,
      'webhook-timestamp': String(Math.floor(at.getTime() / 1_000)),
      'webhook-signature': new Webhook(secret).sign(id, at, body),
      'ackbox-task-no': `task-${id}`,
      'ackbox-message-code': 'order.paid',
      'ackbox-scene-type': '',
      'ackbox-attempt': '1',
      'ackbox-round': '1',
      'ackbox-forget-after': new Date(at.getTime() + 30 * 86_400_000).toISOString(),
      ...more
    },
    body: Buffer.from(body)
  }
}

export const newId = (): string => `${randomUUID()}_points`

/** A gate for two flows that take turns. */
export function door(): { opened: Promise<void>; open(): void } {
  let open = (): void => {}
  const opened = new Promise<void>(resolve => {
    open = resolve
  })
  return { opened, open: () => open() }
}

/** `ON`, the default since MariaDB 11.6.2: a row that has changed since the transaction began to read is an error. MySQL has none. */
export async function snapshotIsolation(bank: Bank): Promise<unknown> {
  const [variable] = await bank.select("show variables like 'innodb_snapshot_isolation'")
  return variable?.['Value']
}
