import { defineHandler, env, url, z } from 'ackbox/handler'

/** Requests on one connection of the downstream; see limit.pipelining. */
export const pipelining = Number(process.env['BENCH_PIPELINING'] ?? 1)

/** A minimal handler: one downstream that answers at once and sends no receipt. */
export default defineHandler({
  messageCode: 'bench',
  body: z.object({ orderId: z.string(), cents: z.int(), note: z.string() }),
  downstreams: {
    'bench-sink': {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.BENCH_SINK}/`, body: raw }),
      limit: {
        concurrency: Number(process.env['BENCH_CONCURRENCY'] ?? 200),
        timeout: Number(process.env['BENCH_TIMEOUT_MS'] ?? 10_000),
        pipelining
      }
    }
  }
})
