import { defineHandler, env, url, z } from 'ackbox/handler'

// As ../handlers, with timeouts long enough and tries enough for a busy machine: for tests that count each delivery.
export default defineHandler({
  messageCode: 'test.plain',
  body: z.object({ n: z.int() }),
  downstreams: {
    plain: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.TEST_SINK}/plain`, body: raw }),
      retry: { times: 50, backoff: '200ms' },
      limit: { concurrency: 50, timeout: '5s' }
    }
  }
})
