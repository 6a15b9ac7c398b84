// Rows of the outbox, as any producer may write them: each becomes a task or a rejected row, and keeps no other from becoming one.
import { connect, type Transaction } from '../../src/db/pool.ts'
import { Finding } from '../reader.ts'
import type { Subject } from '../child.ts'
import { startService, statusOf, type ServiceOptions } from './service.ts'

/** JSON text, or an array of equal elements. */
export type JsonInput = string | { element: string; times: number }

/** The columns as text. A text that its column cannot hold fails the insert, which is the refusal of the row. */
export interface OutboxInput {
  texts: Partial<Record<TextColumn, string>>
  json: Partial<Record<'extend' | 'members', JsonInput>>
  /** The row has the orderingKey of its neighbours. */
  isKeyed: boolean
}
export type TextColumn = (typeof textColumns)[number]

export const textColumns = [
  'task_no',
  'message_code',
  'scene_type',
  'message_body',
  'deliver_start_time',
  'delay',
  'deliver_before',
  'ordering_key',
  'need_callback',
  'retry_times',
  'biz_type',
  'biz_key',
  'traceparent'
] as const

const patienceMs = 30_000
/** The name of no column is an input. */
const columns = [...textColumns, 'extend', 'members'] as const
const types: Partial<Record<(typeof columns)[number], string>> = {
  deliver_start_time: 'timestamptz',
  delay: 'interval',
  deliver_before: 'timestamptz',
  need_callback: 'boolean',
  retry_times: 'int',
  extend: 'jsonb',
  members: 'jsonb'
}

export const subject: Subject<ServiceOptions, OutboxInput> = async options => {
  // Each rejected row raises an alarm, which is logged as an error.
  const port = await startService(options, 'fatal')
  const sql = connect(options.databaseUrl, { max: 20, onnotice: () => {} })
  let played = 0

  async function insert(tx: Transaction, row: Record<string, JsonInput | null>): Promise<string> {
    const names = columns.filter(name => row[name] !== undefined)
    const values: (string | number | null)[] = []
    const mark = (value: string | number | null, type: string): string => `$${values.push(value)}::${type}`
    const marks = names.map(name => {
      const value = row[name] ?? null
      // PostgreSQL builds a long text: the memory of this process is judged.
      const text =
        value === null || typeof value === 'string'
          ? mark(value, 'text')
          : `('[' || repeat(${mark(`${value.element},`, 'text')}, ${mark(value.times - 1, 'int')}) || ${mark(value.element, 'text')} || ']')`
      return `${text}::${types[name] ?? 'text'}`
    })
    const [inserted] = await tx.unsafe<{ id: string }[]>(
      `insert into outbox (${names.join()}, created_by) values (${marks.join()}, 'sql:fuzz') returning id::text`,
      values
    )
    return inserted?.id ?? ''
  }

  /** Returns the id of the row. Undefined: PostgreSQL refused it. */
  async function write(
    input: OutboxInput,
    neighbours: Record<string, string>[]
  ): Promise<string | undefined> {
    const [before = {}, after = {}] = neighbours
    const key = input.isKeyed ? { ordering_key: before['ordering_key'] ?? null } : {}
    try {
      return await sql.begin(async tx => {
        await insert(tx, before)
        const id = await insert(tx, { ...input.texts, ...input.json, ...key })
        await insert(tx, after)
        return id
      })
    } catch (err) {
      // A data exception, a limit, or a limit of the client: nothing was committed.
      if (/^(22|54|53)/.test(String((err as { code?: unknown }).code))) return undefined
      throw err
    }
  }

  return {
    async play(input, within) {
      const name = `fuzz-${process.pid}-${played++}`
      const neighbours = ['before', 'after'].map(each => ({
        task_no: `${name}-${each}`,
        message_code: 'order.paid',
        message_body: '{"orderId":"A-1","cents":4200}',
        delay: '30 days',
        ordering_key: name
      }))
      const id = await write(input, neighbours)
      if (id === undefined) return
      const settled = async (): Promise<void> => {
        for (;;) {
          const [row] = await sql<[{ tasks: number; left: number }]>`
            select (select count(*) from task where task_no in (${`${name}-before`}, ${`${name}-after`}))::int as tasks,
              (select count(*) from outbox where id = ${id}::bigint)::int as left`
          if (row.tasks === 2 && row.left === 0) return
          await new Promise(resolve => setTimeout(resolve, 20))
        }
      }
      await within('the row and its neighbours', patienceMs, settled())
      const taskNo = input.texts.task_no ?? null
      const [end] = await sql<[{ isInSight: boolean }]>`
        select exists (select from task where task_no = ${taskNo})
          or exists (select from outbox_rejected where task_no is not distinct from ${taskNo} or task_no is null) as "isInSight"`
      if (!end.isInSight) throw new Finding('wrong', 'the row is neither a task nor a rejected row')
      const status = await within('healthz', patienceMs, statusOf(port, '/healthz'))
      if (status !== 200) throw new Finding('wrong', `healthz answers ${status}`)
    }
  }
}
