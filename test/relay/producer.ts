// A producer's own database with its outbox, and a relay that empties it.
import path from 'node:path'
import type { Test } from 'tap'
import { openDb } from '../../src/db/pool.ts'
import { ddl } from '../../src/producer/ddl.ts'
import { testMariadb } from '../support/mariadb.ts'
import { emptyDb } from '../support/postgres.ts'
import { program, type Program } from '../support/program.ts'

export const bin = path.resolve(import.meta.dirname, '../../src/cli/ackbox.js')

export type Kind = keyof typeof ddl
export const kinds: Kind[] = ['postgres', 'mysql']

export interface Producer {
  url: string
  /** Runs one statement in a transaction. It commits by default. */
  run(statement: string, end?: 'commit' | 'rollback'): Promise<void>
  /** Keeps the transaction of a statement open for as long as `work` runs, and rolls it back. */
  open(statement: string, work: () => Promise<void>): Promise<void>
  /** The taskNo and the problem of each refused row. */
  rejected(): Promise<{ task_no: string; problem: string }[]>
  /** The number of rows that still wait. */
  waiting(): Promise<number>
}

/** A producer's own database with its tables. Undefined if there is no server of this kind. */
export async function producer(
  t: Test,
  kind: Kind,
  mariadbOptions?: readonly string[]
): Promise<Producer | undefined> {
  const made = kind === 'postgres' ? await onPostgres(t) : await onMariadb(t, mariadbOptions)
  return (
    made && {
      url: made.url,
      run: made.run,
      open: made.open,
      rejected: () => made.read('select task_no, problem from ackbox_outbox_rejected order by id'),
      async waiting() {
        const [row] = await made.read<{ n: number }>('select count(*) as n from ackbox_outbox')
        return Number(row?.n)
      }
    }
  )
}

async function onPostgres(t: Test) {
  const url = await emptyDb(t)
  const sql = openDb(url, { max: 4, applicationName: 'producer' })
  t.teardown(() => sql.end({ timeout: 5 }))
  await sql.unsafe(ddl.postgres)
  return {
    url,
    read: async <Row>(text: string): Promise<Row[]> =>
      [...(await sql.unsafe<(Row & object)[]>(text))] as Row[],
    async open(statement: string, work: () => Promise<void>) {
      const reserved = await sql.reserve()
      await reserved.unsafe('begin')
      await reserved.unsafe(statement)
      await work()
      await reserved.unsafe('rollback')
      reserved.release()
    },
    async run(statement: string, end = 'commit') {
      const undone = new Error('undone')
      await sql
        .begin(async tx => {
          await tx.unsafe(statement)
          if (end === 'rollback') throw undone
        })
        .catch((err: unknown) => {
          if (err !== undone) throw err
        })
    }
  }
}

async function onMariadb(t: Test, options?: readonly string[]) {
  const mariadb = await testMariadb(t, options)
  if (!mariadb) return undefined
  await mariadb.pool.query(ddl.mysql)
  return {
    url: mariadb.url,
    read: async <Row>(text: string): Promise<Row[]> => (await mariadb.pool.query(text))[0] as Row[],
    async open(statement: string, work: () => Promise<void>) {
      const connection = await mariadb.pool.getConnection()
      await connection.query(`begin; ${statement}`)
      await work()
      await connection.query('rollback')
      connection.release()
    },
    async run(statement: string, end = 'commit') {
      await mariadb.pool.query(`begin; ${statement}; ${end}`)
    }
  }
}

const literal = (value: string | null): string => (value === null ? 'null' : `'${value}'`)
export const insert = (
  rows: [taskNo: string, code: string, body: string, orderingKey?: string | null][]
): string =>
  `insert into ackbox_outbox (task_no, message_code, message_body, ordering_key) values ` +
  rows.map(([taskNo, code, body, key = null]) => `(${[taskNo, code, body, key].map(literal).join()})`).join()

export function relay(t: Test, from: string, to: string, ...more: string[]): Program {
  return program(t, process.execPath, [bin, 'relay', '--from', from, '--to', to, ...more], {
    env: { LOG_LEVEL: 'debug' }
  })
}
