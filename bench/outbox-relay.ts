// A producer's own database, whose outbox `ackbox relay` empties. The relay runs as an operator starts it, with its defaults.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import postgres from 'postgres'
import { ddl } from '../src/producer/ddl.ts'
import { now, stop } from './child.ts'
import { messageBodyOf } from './posted.ts'

const program = fileURLToPath(new URL('../src/cli/ackbox.js', import.meta.url))
const rowsOfInsert = 1_000

export interface OutboxOfProducer {
  /** Writes and commits rows while no relay runs. */
  fill(run: string, tasks: number): Promise<void>
  /** Starts a relay. Returns when it was ready (ms of `now`), and the function that stops it. */
  relay(target: string): Promise<{ readyAt: number; end: () => Promise<void> }>
  waiting(): Promise<number>
  close(): Promise<void>
}

/** `url` is the URL of an empty database. */
export async function outboxOfProducer(url: string): Promise<OutboxOfProducer> {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  await sql.unsafe(ddl.postgres)
  return {
    async fill(run, tasks) {
      for (let first = 0; first < tasks; first += rowsOfInsert) {
        const rows = Array.from({ length: Math.min(rowsOfInsert, tasks - first) }, (_, nth) => {
          const taskNo = `${run}-${first + nth}`
          return {
            task_no: taskNo,
            message_code: 'bench',
            message_body: messageBodyOf(taskNo, first + nth)
          }
        })
        await sql`insert into ackbox_outbox ${sql(rows)}`
      }
      await sql`analyze ackbox_outbox`
    },

    async relay(target) {
      const child = spawn(process.execPath, [program, 'relay', '--to', target], {
        env: { ...process.env, ACKBOX_RELAY_FROM: url },
        stdio: ['ignore', 'pipe', 'inherit']
      })
      const gone = once(child, 'exit').then(() => {
        throw new Error('ackbox relay ended before it was ready')
      })
      gone.catch(() => {})
      const lines = createInterface({ input: child.stdout })
      const ready = new Promise<number>(resolve => {
        lines.on('line', line => {
          if (line.includes('"relay.ready"')) resolve(now())
        })
      })
      return { readyAt: await Promise.race([ready, gone]), end: () => stop(child) }
    },

    async waiting() {
      const [found] = await sql<[{ rows: number }]>`select count(*)::int as rows from ackbox_outbox`
      return found.rows
    },

    close: () => sql.end()
  }
}
