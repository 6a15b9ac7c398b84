import { defineHandler, env, url, z } from 'ackbox/handler'
import { stamp } from '../stamp.ts'

/** A good answer ends the delivery. */
export default defineHandler({
  messageCode: 'chaos.plain',
  body: z.looseObject({ n: z.int() }),
  downstreams: {
    plain: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.CHAOS_SINK}/plain`, body: raw, headers: stamp() }),
      secrets: [env.CHAOS_SIGNING_SECRET ?? ''],
      retry: { times: 30, backoff: ['200ms', '500ms', '1s', '2s'] },
      limit: { concurrency: 50, timeout: '2s' }
    }
  }
})
