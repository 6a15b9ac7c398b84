import { defineHandler, env, url, z } from 'ackbox/handler'

// The handler of the tests of whole processes. Timeouts are short, so that leases are short.
const limit = { concurrency: 50, timeout: '2s' } as const
const retry = { times: 10, backoff: ['200ms', '500ms', '1s'] } as const

export default defineHandler({
  messageCode: 'test.receipt',
  body: z.object({ n: z.int() }),
  downstreams: {
    receipted: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.TEST_SINK}/receipted`, body: raw }),
      needCallback: true,
      receiptTimeout: '3s',
      retry: { times: retry.times, backoff: [...retry.backoff] },
      limit
    }
  }
})
