// Every library that ackbox/producer has an adapter for, opened as its users open it, behind one interface.
import { drizzle as drizzleMysql } from 'drizzle-orm/mysql2'
import { drizzle as drizzlePg } from 'drizzle-orm/node-postgres'
import { drizzle as drizzlePostgresJs } from 'drizzle-orm/postgres-js'
import { sql as drizzleSql } from 'drizzle-orm'
import knex from 'knex'
import { Kysely, MysqlDialect, PostgresDialect, sql as kyselySql } from 'kysely'
import mysqlCallbacks from 'mysql2'
import mysql from 'mysql2/promise'
import postgres from 'postgres'
import { DataSource } from 'typeorm'
import * as producer from '../../src/producer/producer.ts'
import type { Database, PostgresJs, Tx } from '../../src/producer/producer.ts'
import { pgPool } from '../support/pg-pool.ts'
import { prismaClient } from '../support/prisma.ts'

/** A transaction of a library: the handle for ackbox/producer, and a way to run the user's own statements. */
export interface Inside {
  tx: Tx | PostgresJs
  run(text: string): Promise<unknown>
}

export interface Library {
  name: string
  open(url: string): Promise<Opened>
}
export interface Opened {
  transaction<Result>(work: (inside: Inside) => Promise<Result>): Promise<Result>
  /** The same, through the Database that the adapter makes. Its work gets the library's own handle. */
  began?(work: (inside: Inside) => Promise<void>): Promise<void>
  /** Handles that are no transactions, but are easily mistaken for one. */
  outside: Record<string, Database<unknown> | PostgresJs>
  close(): Promise<unknown>
}

export const onPostgres: Library[] = [
  {
    name: 'postgres.js',
    async open(url) {
      const sql = postgres(url, { max: 2, onnotice: () => {} })
      const reserved = await sql.reserve()
      return {
        transaction: async work =>
          (await sql.begin(tx => work({ tx, run: text => tx.unsafe(text) }))) as Awaited<
            ReturnType<typeof work>
          >,
        outside: { sql, 'a reserved connection': reserved },
        close: async () => {
          reserved.release()
          await sql.end({ timeout: 5 })
        }
      }
    }
  },
  {
    name: 'pg',
    async open(url) {
      const pool = pgPool(url, 2)
      const client = await pool.connect()
      return {
        transaction: async work => {
          try {
            await client.query('begin')
            const result = await work({ tx: producer.fromPg(client), run: text => client.query(text) })
            await client.query('commit')
            return result
          } catch (err) {
            await client.query('rollback')
            throw err
          }
        },
        began: work => {
          const at = producer.fromPg(pool)
          return at.begin(tx => work({ tx: at.within(tx), run: text => tx.query(text) }))
        },
        outside: { 'a pool': producer.fromPg(pool), 'a client': producer.fromPg(client) },
        close: async () => {
          client.release()
          await pool.end()
        }
      }
    }
  },
  ...knexes('pg'),
  {
    name: 'kysely',
    open: async url => kysely(new Kysely<unknown>({ dialect: new PostgresDialect({ pool: pgPool(url, 2) }) }))
  },
  {
    name: 'drizzle on pg',
    async open(url) {
      const pool = pgPool(url, 2)
      const db = drizzlePg(pool)
      return {
        transaction: work =>
          db.transaction(tx =>
            work({ tx: producer.fromDrizzle(tx), run: text => tx.execute(drizzleSql.raw(text)) })
          ),
        began: work => {
          const at = producer.fromDrizzle(db)
          return at.begin(tx => work({ tx: at.within(tx), run: text => tx.execute(drizzleSql.raw(text)) }))
        },
        outside: { db: producer.fromDrizzle(db) },
        close: () => pool.end()
      }
    }
  },
  {
    name: 'drizzle on postgres.js',
    async open(url) {
      const client = postgres(url, { max: 2 })
      const db = drizzlePostgresJs(client)
      return {
        transaction: work =>
          db.transaction(tx =>
            work({ tx: producer.fromDrizzle(tx), run: text => tx.execute(drizzleSql.raw(text)) })
          ),
        began: work => {
          const at = producer.fromDrizzle(db)
          return at.begin(tx => work({ tx: at.within(tx), run: text => tx.execute(drizzleSql.raw(text)) }))
        },
        outside: { db: producer.fromDrizzle(db) },
        close: () => client.end({ timeout: 5 })
      }
    }
  },
  {
    name: 'Prisma',
    async open(url) {
      const prisma = prismaClient(url)
      return {
        transaction: work =>
          prisma.$transaction(tx =>
            work({ tx: producer.fromPrisma(tx), run: text => tx.$executeRawUnsafe(text) })
          ),
        began: work => {
          const at = producer.fromPrisma(prisma)
          return at.begin(tx => work({ tx: at.within(tx), run: text => tx.$executeRawUnsafe(text) }))
        },
        outside: { 'the client': producer.fromPrisma(prisma) },
        close: () => prisma.$disconnect()
      }
    }
  },
  { name: 'TypeORM', open: async url => typeorm(new DataSource({ type: 'postgres', url })) }
]

export const onMariadb: Library[] = [
  {
    name: 'mysql2',
    async open(url) {
      const pool = mysql.createPool({ uri: url, connectionLimit: 2 })
      const connection = await pool.getConnection()
      return {
        transaction: async work => {
          try {
            await connection.beginTransaction()
            const inside = {
              tx: producer.fromMysql2(connection),
              run: (text: string) => connection.query(text)
            }
            const result = await work(inside)
            await connection.commit()
            return result
          } catch (err) {
            await connection.rollback()
            throw err
          }
        },
        began: work => {
          const at = producer.fromMysql2(pool)
          return at.begin(tx => work({ tx: at.within(tx), run: text => tx.query(text) }))
        },
        outside: { 'a pool': producer.fromMysql2(pool), 'a connection': producer.fromMysql2(connection) },
        close: async () => {
          connection.release()
          await pool.end()
        }
      }
    }
  },
  {
    name: 'mysql2 with callbacks',
    async open(url) {
      const pool = mysqlCallbacks.createPool({ uri: url, connectionLimit: 2 })
      const connection = mysqlCallbacks.createConnection({ uri: url })
      const promised = connection.promise()
      return {
        transaction: async work => {
          try {
            await promised.beginTransaction()
            const inside = {
              tx: producer.fromMysql2(connection),
              run: (text: string) => promised.query(text)
            }
            const result = await work(inside)
            await promised.commit()
            return result
          } catch (err) {
            await promised.rollback()
            throw err
          }
        },
        began: work => {
          const at = producer.fromMysql2(pool)
          return at.begin(tx => work({ tx: at.within(tx), run: text => tx.query(text) }))
        },
        outside: { 'a pool': producer.fromMysql2(pool), 'a connection': producer.fromMysql2(connection) },
        close: async () => {
          await promised.end()
          await pool.promise().end()
        }
      }
    }
  },
  ...knexes('mysql2'),
  {
    name: 'kysely',
    open: async url =>
      kysely(new Kysely<unknown>({ dialect: new MysqlDialect({ pool: mysqlCallbacks.createPool(url) }) }))
  },
  {
    name: 'drizzle on mysql2',
    async open(url) {
      const pool = mysql.createPool(url)
      const db = drizzleMysql(pool)
      return {
        transaction: work =>
          db.transaction(tx =>
            work({ tx: producer.fromDrizzle(tx), run: text => tx.execute(drizzleSql.raw(text)) })
          ),
        began: work => {
          const at = producer.fromDrizzle(db)
          return at.begin(tx => work({ tx: at.within(tx), run: text => tx.execute(drizzleSql.raw(text)) }))
        },
        outside: { db: producer.fromDrizzle(db) },
        close: () => pool.end()
      }
    }
  },
  { name: 'TypeORM', open: async url => typeorm(new DataSource({ type: 'mariadb', url })) }
]

function knexes(client: 'pg' | 'mysql2'): Library[] {
  return [
    {
      name: `knex on ${client}`,
      async open(url) {
        const db = knex({ client, connection: url, pool: { min: 0, max: 2 } })
        return {
          transaction: work =>
            db.transaction(trx =>
              work({ tx: producer.fromKnex(trx), run: async text => await trx.raw(text) })
            ),
          began: work => {
            const at = producer.fromKnex(db)
            return at.begin(trx => work({ tx: at.within(trx), run: async text => await trx.raw(text) }))
          },
          outside: { 'the knex': producer.fromKnex(db) },
          close: () => db.destroy()
        }
      }
    }
  ]
}

function kysely(db: Kysely<unknown>): Opened {
  return {
    transaction: work =>
      db
        .transaction()
        .execute(trx =>
          work({ tx: producer.fromKysely(trx), run: text => kyselySql.raw(text).execute(trx) })
        ),
    began: work => {
      const at = producer.fromKysely(db)
      return at.begin(trx => work({ tx: at.within(trx), run: text => kyselySql.raw(text).execute(trx) }))
    },
    outside: { 'the Kysely': producer.fromKysely(db) },
    close: () => db.destroy()
  }
}

async function typeorm(source: DataSource): Promise<Opened> {
  await source.initialize()
  const runner = source.createQueryRunner()
  return {
    transaction: work =>
      source.transaction(manager =>
        work({ tx: producer.fromTypeorm(manager), run: text => manager.query(text) })
      ),
    began: work => {
      const at = producer.fromTypeorm(source)
      return at.begin(manager => work({ tx: at.within(manager), run: text => manager.query(text) }))
    },
    outside: {
      'the DataSource': producer.fromTypeorm(source),
      'its manager': producer.fromTypeorm(source.manager),
      'a query runner': producer.fromTypeorm(runner)
    },
    close: async () => {
      await runner.release()
      await source.destroy()
    }
  }
}
