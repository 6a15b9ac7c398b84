// A producer's own database with one account, on a pool of `pg` or of `mysql2`.
import mysql from 'mysql2/promise'
import type { Test } from 'tap'
import { ddl, fromMysql2, fromPg, type Database, type Row } from '../../src/producer/producer.ts'
import { testMariadb } from '../support/mariadb.ts'
import { pgPool } from '../support/pg-pool.ts'
import { emptyDb } from '../support/postgres.ts'

export interface Shop {
  url: string
  db: Database<unknown>
  /** Runs a statement of the shop in a transaction. */
  run(native: unknown, text: string): Promise<unknown>
  select(text: string): Promise<readonly Row[]>
  balance(): Promise<number>
}

export const pay = 'update account set balance = balance - 7 where id = 1'
/** Fails: the balance may not be negative. */
export const overdraw = 'update account set balance = balance - 700 where id = 1'
const account =
  'create table account (id int primary key, balance int not null check (balance >= 0)); insert into account values (1, 500)'

export async function postgresShop(t: Test): Promise<Shop> {
  const url = await emptyDb(t)
  const pool = pgPool(url)
  t.teardown(() => pool.end())
  await pool.query(ddl.postgres + account)
  return shop(url, fromPg(pool), async text => (await pool.query<Row>(text)).rows)
}

/** Undefined if there is no MariaDB. The test is then skipped. */
export async function mariadbShop(t: Test): Promise<Shop | undefined> {
  const mariadb = await testMariadb(t)
  if (!mariadb) return undefined
  await mariadb.pool.query(ddl.mysql + account)
  const pool = mysql.createPool({ uri: mariadb.url, connectionLimit: 12 })
  t.teardown(() => pool.end())
  const select = async (text: string) => (await pool.query(text))[0] as Row[]
  return shop(mariadb.url, fromMysql2(pool), select)
}

function shop(url: string, db: Database<unknown>, select: Shop['select']): Shop {
  return {
    url,
    db,
    run: (native, text) => (native as { query(text: string): Promise<unknown> }).query(text),
    select,
    balance: async () => Number((await select('select balance from account'))[0]?.['balance'])
  }
}

/** A stub of the enqueue function that an Ackbox in the same database has. It stores its arguments in `enqueued`. */
export const enqueueStub = `
  create schema ackbox_api;
  create table enqueued (task_no text, message_code text, message_body text, scene_type text, delay interval, start timestamptz);
  create function ackbox_api.enqueue(
    message_code text, message_body text, task_no text default null, scene_type text default '',
    deliver_start_time timestamptz default null, delay interval default null
  ) returns text language sql as $$
    insert into enqueued values (task_no, message_code, message_body, scene_type, delay, deliver_start_time) returning task_no
  $$`
