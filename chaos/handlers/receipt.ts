import { defineHandler, env, url, z } from 'ackbox/handler'
import { stamp } from '../stamp.ts'

/** The receipt ends the delivery. */
export default defineHandler({
  messageCode: 'chaos.receipt',
  body: z.looseObject({ n: z.int() }),
  downstreams: {
    receipted: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.CHAOS_SINK}/receipted`, body: raw, headers: stamp() }),
      secrets: [env.CHAOS_SIGNING_SECRET ?? ''],
      needCallback: true,
      receiptTimeout: '3s',
      retry: { times: 30, backoff: ['200ms', '500ms', '1s', '2s'] },
      limit: { concurrency: 50, timeout: '2s' }
    }
  }
})
