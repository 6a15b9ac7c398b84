import { defineHandler, env, url, type Downstream, type z } from 'ackbox/handler'
import plain, { pipelining } from '../bench.ts'

/** Four downstreams share the concurrency of the plain handler's one. */
const downstream = (nth: number): Downstream<'http', z.infer<typeof plain.body>> => ({
  transport: 'http',
  request: ({ raw }) => ({ url: url`${env.BENCH_SINK}/${nth}`, body: raw }),
  limit: { concurrency: 50, timeout: '10s', pipelining }
})

/** Every task goes to four downstreams. */
export default defineHandler({
  ...plain,
  downstreams: {
    'bench-0': downstream(0),
    'bench-1': downstream(1),
    'bench-2': downstream(2),
    'bench-3': downstream(3)
  }
})
