import { defineHandler, env, url, z } from 'ackbox/handler'

export default defineHandler({
  messageCode: 'test.plain',
  body: z.object({ n: z.int() }),
  downstreams: {
    plain: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.TEST_SINK}/plain`, body: raw }),
      retry: { times: 10, backoff: ['200ms', '500ms', '1s'] },
      limit: { concurrency: 50, timeout: '2s' }
    }
  },
  checkBack: () => ({ url: url`${env.TEST_SINK}/check` })
})
