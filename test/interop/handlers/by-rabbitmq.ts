import { defineHandler, z } from 'ackbox/handler'

export default defineHandler({
  messageCode: 'by.rabbitmq',
  body: z.object({ key: z.string() }),
  downstreams: {
    'by-rabbitmq': {
      transport: 'rabbitmq',
      request: ({ raw }) => ({ routingKey: 'story', body: raw }),
      needCallback: true,
      receiptTimeout: '20s',
      retry: { times: 100, backoff: ['500ms', '1s', '2s'] },
      limit: { concurrency: 50, timeout: '3s' }
    }
  }
})
