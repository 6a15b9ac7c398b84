import { defineHandler, z } from 'ackbox/handler'

export default defineHandler({
  messageCode: 'by.nats',
  body: z.object({ key: z.string() }),
  downstreams: {
    'by-nats': {
      transport: 'nats',
      request: ({ raw }) => ({ subject: 'story', payload: raw }),
      needCallback: true,
      receiptTimeout: '20s',
      retry: { times: 100, backoff: ['500ms', '1s', '2s'] },
      limit: { concurrency: 50, timeout: '3s' }
    }
  }
})
