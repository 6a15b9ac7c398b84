import { defineHandler, z } from 'ackbox/handler'

export default defineHandler({
  messageCode: 'by.rocketmq',
  body: z.object({ key: z.string() }),
  downstreams: {
    'by-rocketmq': {
      transport: 'rocketmq',
      request: ({ raw }) => ({ topic: 'orders', body: raw }),
      needCallback: true,
      receiptTimeout: '20s',
      retry: { times: 100, backoff: ['500ms', '1s', '2s'] },
      limit: { concurrency: 50, timeout: '3s' }
    }
  }
})
