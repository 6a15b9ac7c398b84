import { defineHandler, env, url, z } from 'ackbox/handler'

export default defineHandler({
  messageCode: 'test.receipt',
  body: z.object({ n: z.int() }),
  downstreams: {
    receipted: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.TEST_SINK}/receipted`, body: raw }),
      needCallback: true,
      receiptTimeout: '15s',
      retry: { times: 50, backoff: '200ms' },
      limit: { concurrency: 50, timeout: '5s' }
    }
  }
})
