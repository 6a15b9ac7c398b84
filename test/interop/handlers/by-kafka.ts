import { defineHandler, z } from 'ackbox/handler'

export default defineHandler({
  messageCode: 'by.kafka',
  body: z.object({ key: z.string() }),
  downstreams: {
    'by-kafka': {
      transport: 'kafka',
      request: ({ body, raw }) => ({ topic: 'story', key: body.key, value: raw }),
      needCallback: true,
      receiptTimeout: '20s',
      retry: { times: 100, backoff: ['500ms', '1s', '2s'] },
      limit: { concurrency: 50, timeout: '3s' }
    }
  }
})
