import { defineHandler, env, url, z } from 'ackbox/handler'
import { stamp } from '../stamp.ts'

/** Two downstreams. The second owes a receipt. Neither may stop the other. Requests to the first share connections. */
export default defineHandler({
  messageCode: 'chaos.pair',
  body: z.looseObject({ n: z.int() }),
  downstreams: {
    left: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.CHAOS_SINK}/left`, body: raw, headers: stamp() }),
      secrets: [env.CHAOS_SIGNING_SECRET ?? ''],
      retry: { times: 30, backoff: ['200ms', '500ms', '1s', '2s'] },
      limit: { concurrency: 50, timeout: '2s', pipelining: 5 }
    },
    right: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.CHAOS_SINK}/right`, body: raw, headers: stamp() }),
      secrets: [env.CHAOS_SIGNING_SECRET ?? ''],
      needCallback: true,
      receiptTimeout: '3s',
      retry: { times: 30, backoff: ['200ms', '500ms', '1s', '2s'] },
      limit: { concurrency: 50, timeout: '2s' }
    }
  }
})
