import { defineHandler, env, url, z } from 'ackbox/handler'
import type { Downstream } from 'ackbox/handler'

const body = z.object({ orderId: z.string(), cents: z.int(), note: z.string() })
/** Four share what the plain one has alone. */
const downstream = (nth: number): Downstream<'http', z.infer<typeof body>> => ({
  transport: 'http',
  request: ({ raw }) => ({ url: url`${env.BENCH_SINK}/${nth}`, body: raw }),
  limit: { concurrency: 50, timeout: '10s' }
})

/** Every task goes to four downstreams. */
export default defineHandler({
  messageCode: 'bench',
  body,
  downstreams: {
    'bench-0': downstream(0),
    'bench-1': downstream(1),
    'bench-2': downstream(2),
    'bench-3': downstream(3)
  }
})
