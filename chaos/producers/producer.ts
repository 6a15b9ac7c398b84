// node producer.js: a shop with its own PostgreSQL, a schema in Ackbox's database, and a MariaDB. It performs each order of the run in
// a transaction, with a row of `shop_order` and its task, and dies where the order demands it. The tables show the result.
import mysql from 'mysql2/promise'
import postgres from 'postgres'
import { client, enqueue, fromMysql2, halfMessage, outbox, type Task } from '../../src/producer/producer.ts'
import { pause } from '../client.ts'
import { requestMs, type Step, type Way, type Work } from './plan.ts'

export type Order = { kind: 'work'; work: Work; after: string[] } | { kind: 'finish' }
export type ProducerMessage = { kind: 'posted'; taskNo: string } | { kind: 'finished'; pid: number }

const {
  CHAOS_ACKBOX_DB = '',
  CHAOS_SHOP_DB = '',
  CHAOS_MARIADB = '',
  CHAOS_ACKBOX = '',
  CHAOS_KEY = ''
} = process.env
const connection = { application_name: 'shop' }
const ackboxDb = postgres(CHAOS_ACKBOX_DB, { max: 6, onnotice: () => {}, connection })
const shopDb = postgres(CHAOS_SHOP_DB, { max: 14, onnotice: () => {}, connection })
const mariadb = mysql.createPool({ uri: CHAOS_MARIADB, connectionLimit: 6 })
const ackbox = client({ url: CHAOS_ACKBOX, key: CHAOS_KEY, ...requestMs })
const open = new Set<Promise<void>>()
let finishing: Promise<void> | undefined

process.on('message', (order: Order) => {
  if (order.kind === 'work') start(perform(order.work, order.after))
  else finishing ??= finish()
})
process.on('SIGTERM', () => process.exit(0))
process.on('disconnect', () => process.exit(0))
// An earlier launch may have died between its commit and its POST.
start(postRest())
console.log('producer.ready')

function start(work: Promise<void>): void {
  // A failed work is rolled back, or the next launch finds it in the tables.
  const done = work.catch((err: Error) => console.log(err.message)).finally(() => open.delete(done))
  open.add(done)
}

async function finish(): Promise<void> {
  while (open.size > 0) await Promise.all(open)
  for (let isDone = false; !isDone; await pause(200))
    isDone = await postRest().then(
      () => true,
      () => false
    )
  process.send?.({ kind: 'finished', pid: process.pid } satisfies ProducerMessage)
}

class RolledBack extends Error {}

const taskOf = (work: Work, after: readonly string[]): Task => ({
  taskNo: work.taskNo,
  messageCode: work.messageCode,
  messageBodyText: work.body,
  ...(after.length > 0 && { after }),
  ...(work.delayMs !== undefined && { delay: work.delayMs })
})

/** The steps of one transaction. This process ends at the step that `dies` names. */
function moments({ dies, openMs, rollsBack }: Work) {
  const reach = (step: Step): void => {
    if (dies?.at !== step) return
    // The COMMIT is only sent when this code yields.
    if (dies.afterMs === 0 && step !== 'committing') process.kill(process.pid, 'SIGKILL')
    else setTimeout(() => process.kill(process.pid, 'SIGKILL'), dies.afterMs)
  }
  return {
    reach,
    /** Before the COMMIT. */
    async end(): Promise<void> {
      reach('writing')
      if (openMs !== undefined) await pause(openMs)
      if (rollsBack) throw new RolledBack('rolled back')
      reach('committing')
    }
  }
}

const performed: Record<Way, (work: Work, after: string[]) => Promise<void>> = {
  async enqueue(work) {
    const { reach, end } = moments(work)
    await ackboxDb.begin(async tx => {
      await insertOrder(tx, work, [])
      reach('working')
      await enqueue(tx, taskOf(work, []))
      await end()
    })
    reach('committed')
    // Some nudge Ackbox. Ackbox finds the others itself.
    if (work.taskNo.endsWith('1')) await ackbox.nudge()
    reach('telling')
  },
  async postgres(work, after) {
    const { reach, end } = moments(work)
    await shopDb.begin(async tx => {
      await insertOrder(tx, work, after)
      reach('working')
      await outbox(tx, taskOf(work, after))
      await end()
    })
    reach('committed')
  },
  async mariadb(work, after) {
    const { reach, end } = moments(work)
    await fromMysql2(mariadb).begin(async tx => {
      await tx.execute(
        'insert into shop_order (task_no, way, message_code, body, waits_for) values (?, ?, ?, ?, ?)',
        [work.taskNo, work.way, work.messageCode, work.body, JSON.stringify(after)]
      )
      reach('working')
      await outbox(fromMysql2(tx), taskOf(work, after))
      await end()
    })
    reach('committed')
  },
  async half(work) {
    const { reach, end } = moments(work)
    const { lateMs = 0 } = work
    const late = {
      unsafe: shopDb.unsafe,
      begin: async (inside: (tx: postgres.TransactionSql) => Promise<unknown>) => {
        await pause(lateMs)
        return await shopDb.begin(inside)
      }
    } as unknown as postgres.Sql
    await halfMessage(
      ackbox,
      late,
      taskOf(work, []),
      async tx => {
        await insertOrder(tx, work, [])
        reach('working')
        await end()
        // The commit comes next, and then the request to Ackbox.
        if (work.dies?.at === 'telling') setTimeout(() => reach('telling'), 4)
      },
      // With 4 s the transaction begins before the check, even on a busy machine.
      { checkAfter: work.openMs === undefined && lateMs === 0 ? '4s' : '1s' }
    )
    reach('committed')
  },
  /** As a careful producer without any of these: it marks the rows that it has posted, and posts the others again. */
  async post(work, after) {
    const { reach, end } = moments(work)
    await shopDb.begin(async tx => {
      await insertOrder(tx, work, after)
      reach('working')
      await end()
    })
    reach('committed')
    if (work.dies?.at === 'telling') setTimeout(() => reach('telling'), 2)
    await post(work, after)
  }
}

const perform = (work: Work, after: string[]): Promise<void> => performed[work.way](work, after)

async function insertOrder(tx: postgres.TransactionSql, work: Work, after: readonly string[]): Promise<void> {
  await tx`
    insert into shop_order (task_no, way, message_code, body, waits_for, delay_ms)
    values (${work.taskNo}, ${work.way}, ${work.messageCode}, ${work.body}, ${JSON.stringify(after)}, ${work.delayMs ?? null})`
}

async function post(work: Work, after: readonly string[]): Promise<void> {
  await ackbox.post(taskOf(work, after))
  process.send?.({ kind: 'posted', taskNo: work.taskNo } satisfies ProducerMessage)
  await shopDb`update shop_order set posted = true where task_no = ${work.taskNo}`
}

async function postRest(): Promise<void> {
  const rows = await shopDb<
    { task_no: string; message_code: string; body: string; waits_for: string; delay_ms: number | null }[]
  >`
    select task_no, message_code, body, waits_for, delay_ms from shop_order where way = 'post' and not posted order by id`
  for (const row of rows) {
    const work = { taskNo: row.task_no, messageCode: row.message_code, body: row.body } as Work
    await post(
      { ...work, ...(row.delay_ms !== null && { delayMs: row.delay_ms }) },
      JSON.parse(row.waits_for) as string[]
    )
  }
}
