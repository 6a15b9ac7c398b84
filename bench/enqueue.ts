// Producers that enqueue by SQL. Each call is its own transaction, as when business rows are written with it.
import { setTimeout as sleep } from 'node:timers/promises'
import postgres from 'postgres'
import { now, serve } from './child.ts'
import { connection } from './http1.ts'
import type { LoadReport } from './load.ts'
import { batchOf, messageBodyOf } from './posted.ts'

export interface EnqueueQuestion {
  databaseUrl: string
  run: string
  tasks: number
  inFlight: number
  /** Calls a second; without it each answer triggers the next call. */
  rate?: number
  /** Tasks per call of enqueue_many; without it each task has a call of enqueue. */
  batch?: number
  /** The URL of the service to nudge after each commit. */
  nudge?: string
}

serve(
  {},
  async ({ databaseUrl, run, tasks, inFlight, rate, batch, nudge }: EnqueueQuestion): Promise<LoadReport> => {
    const sql = postgres(databaseUrl, { max: inFlight, onnotice: () => {} })
    const api = nudge === undefined ? undefined : connection(new URL(nudge))
    const starts = new Float64Array(tasks)
    const accepts = new Float64Array(tasks)
    const size = batch ?? 1
    await Promise.all(Array.from({ length: inFlight }, () => sql`select pg_sleep(0.01)`)) // opens all connections
    const call = async (index: number) => {
      const past = Math.min(index + size, tasks)
      starts.fill(now(), index, past)
      if (batch === undefined) {
        const taskNo = `${run}-${index}`
        await sql`select ackbox_api.enqueue('bench', ${messageBodyOf(taskNo, index)}, ${taskNo})`
      } else {
        const { tasks: many } = JSON.parse(batchOf(run, index, past)) as { tasks: postgres.JSONValue }
        await sql`select ackbox_api.enqueue_many(${sql.json(many)})`
      }
      accepts.fill(now(), index, past)
      await api?.post('/outbox/nudge', '{}')
    }
    let next = 0
    if (rate === undefined) {
      const producer = async () => {
        for (let index = next; index < tasks; index = next) {
          next += size
          await call(index)
        }
      }
      await Promise.all(Array.from({ length: inFlight }, producer))
    } else {
      const began = now()
      const calls: Promise<void>[] = []
      for (; next < tasks; next += size) {
        const due = began + (next * 1000) / rate
        while (due > now()) await sleep(Math.max(1, Math.ceil(due - now())))
        calls.push(call(next))
      }
      await Promise.all(calls)
    }
    api?.close()
    await sql.end()
    return { starts, accepts, refused: 0 }
  }
)
