import { defineHandler, env, url, z } from 'ackbox/handler'

// Leases, receipt timeouts and backoffs of about a second, so that a story of faults takes only seconds.
export default defineHandler({
  messageCode: 'test.fault',
  body: z.object({ n: z.int() }),
  downstreams: {
    faulty: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.TEST_SINK}/faulty`, body: raw }),
      needCallback: true,
      receiptTimeout: '1s',
      retry: { times: 10, backoff: ['200ms', '500ms'] },
      limit: { concurrency: 50, timeout: '1s' }
    }
  }
})
