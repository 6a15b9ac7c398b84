import { defineHandler, env, url, z } from 'ackbox/handler'

/** One of ten codes, each with a downstream of its own and all with the same limit, the default. */
export const tenth = (n: number) =>
  defineHandler({
    messageCode: `bench.${n}`,
    body: z.object({ orderId: z.string(), cents: z.int(), note: z.string() }),
    downstreams: {
      [`bench-${n}`]: {
        transport: 'http',
        request: ({ raw }) => ({ url: url`${env[`BENCH_SINK_${n}`]}/`, body: raw }),
        limit: { concurrency: 50, timeout: '10s' }
      }
    }
  })
