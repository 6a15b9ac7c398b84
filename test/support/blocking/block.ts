import { existsSync } from 'node:fs'
import { defineHandler, env, url, z } from 'ackbox/handler'

const sleeper = new Int32Array(new SharedArrayBuffer(4))

// A handler that blocks its process until the file TEST_BLOCK_UNTIL exists: nothing else runs in the process meanwhile.
export default defineHandler({
  messageCode: 'test.plain',
  body: z.object({ n: z.int() }),
  downstreams: {
    plain: {
      transport: 'http',
      request: ({ raw, body }) => {
        while (body.n === 0 && !existsSync(env.TEST_BLOCK_UNTIL ?? '')) Atomics.wait(sleeper, 0, 0, 20)
        return { url: url`${env.TEST_SINK}/plain`, body: raw }
      },
      retry: { times: 10, backoff: '200ms' },
      limit: { concurrency: 50, timeout: '5s' }
    }
  }
})
