import { defineHandler, env, url, z } from 'ackbox/handler'

// The handler of the tests of half messages, with the URL of the producer's check-back.
export default defineHandler({
  messageCode: 'test.half',
  body: z.object({ n: z.int() }),
  downstreams: {
    half: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.TEST_SINK}/half`, body: raw }),
      retry: { times: 10, backoff: ['200ms', '500ms', '1s'] },
      limit: { concurrency: 50, timeout: '2s' }
    }
  },
  checkBack: ({ task }) => ({ url: url`${env.TEST_PRODUCER}?taskNo=${task.taskNo}` })
})
