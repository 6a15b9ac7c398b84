import { defineHandler, env, url, z } from 'ackbox/handler'
import { stamp } from '../stamp.ts'

/** Its tasks may be half messages. The producer answers the checks. */
export default defineHandler({
  messageCode: 'chaos.half',
  body: z.looseObject({ n: z.int() }),
  checkBack: () => ({ url: url`${env.CHAOS_CHECK}/check` }),
  downstreams: {
    halved: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.CHAOS_SINK}/halved`, body: raw, headers: stamp() }),
      secrets: [env.CHAOS_SIGNING_SECRET ?? ''],
      retry: { times: 30, backoff: ['200ms', '500ms', '1s', '2s'] },
      limit: { concurrency: 50, timeout: '2s' }
    }
  }
})
