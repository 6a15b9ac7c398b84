import { defineHandler, env, url, z } from 'ackbox/handler'

/** As the plain one, but it owes a receipt. */
export default defineHandler({
  messageCode: 'bench',
  body: z.object({ orderId: z.string(), cents: z.int(), note: z.string() }),
  downstreams: {
    'bench-sink': {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.BENCH_SINK}/`, body: raw }),
      needCallback: true,
      limit: { concurrency: 200, timeout: '10s' }
    }
  }
})
