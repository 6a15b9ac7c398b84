import { createServer, type Server } from 'node:http'
import { Counter, Gauge, Registry } from 'prom-client'
import type { Waiting } from './source.ts'

interface RelayMetrics {
  batch(done: { accepted: number; rejected: number }): void
  /** null: the database and Ackbox both answer. */
  health(fault: string | null): void
  /** Serves `/healthz` and `/metrics`. Each request for the metrics calls `waiting`. */
  listen(host: string, port: number, waiting: () => Promise<Waiting>): Promise<Server>
}

export function relayMetrics(): RelayMetrics {
  const registers = [new Registry()]
  const rows = new Counter({
    name: 'ackbox_relay_rows_total',
    help: 'Rows that left the outbox, by result: accepted, rejected',
    labelNames: ['result'],
    registers
  })
  for (const result of ['accepted', 'rejected']) rows.inc({ result }, 0)
  const gauge = (name: string, help: string) => new Gauge({ name, help, registers })
  const waitingRows = gauge('ackbox_relay_waiting_rows', 'Rows in the outbox; at most 100,000 are counted')
  const oldest = gauge('ackbox_relay_oldest_seconds', 'Age of the oldest row in the outbox')
  const rejectedRows = gauge(
    'ackbox_relay_rejected_rows',
    'Rows that Ackbox refused, in ackbox_outbox_rejected'
  )
  const up = gauge('ackbox_relay_up', '1 while the database and Ackbox both answer')
  up.set(1)
  let fault: string | null = null

  return {
    batch({ accepted, rejected }) {
      rows.inc({ result: 'accepted' }, accepted)
      rows.inc({ result: 'rejected' }, rejected)
    },
    health(now) {
      fault = now
      up.set(now === null ? 1 : 0)
    },
    async listen(host, port, waiting) {
      const server = createServer((request, answer) => {
        const reply = (status: number, text: string, type = 'text/plain; charset=utf-8'): void => {
          answer.writeHead(status, { 'content-type': type }).end(text)
        }
        if (request.url === '/healthz') return reply(fault === null ? 200 : 503, `${fault ?? 'ok'}\n`)
        if (request.url !== '/metrics') return reply(404, 'Use /healthz or /metrics.\n')
        void waiting()
          .then(
            now => {
              waitingRows.set(now.rows)
              oldest.set(now.oldestS)
              rejectedRows.set(now.rejected)
            },
            () => up.set(0)
          )
          .then(async () =>
            reply(200, await (registers[0] as Registry).metrics(), Registry.PROMETHEUS_CONTENT_TYPE)
          )
      })
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject)
        server.listen(port, host, resolve)
      })
      return server
    }
  }
}
