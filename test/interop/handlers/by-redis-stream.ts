import { defineHandler, z } from 'ackbox/handler'

export default defineHandler({
  messageCode: 'by.redis-stream',
  body: z.object({ key: z.string() }),
  downstreams: {
    'by-redis-stream': {
      transport: 'redis-stream',
      request: () => ({ stream: 'story' }),
      needCallback: true,
      receiptTimeout: '20s',
      retry: { times: 100, backoff: ['500ms', '1s', '2s'] },
      limit: { concurrency: 50, timeout: '3s' }
    }
  }
})
