import { defineHandler, env, url, z } from 'ackbox/handler'

// A handler that computes for longer than its lease, in the process that is told to: nothing else runs there meanwhile.
export default defineHandler({
  messageCode: 'test.plain',
  body: z.object({ n: z.int() }),
  downstreams: {
    plain: {
      transport: 'http',
      request: ({ raw, body }) => {
        const ms = body.n === 0 ? Number(env.TEST_BLOCK_MS) : 0
        for (const end = performance.now() + ms; performance.now() < end;);
        return { url: url`${env.TEST_SINK}/plain`, body: raw }
      },
      retry: { times: 10, backoff: '200ms' },
      limit: { concurrency: 50, timeout: '2s' }
    }
  }
})
