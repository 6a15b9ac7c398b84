import { defineHandler, env, url, z } from 'ackbox/handler'

// It shares its downstream with test.pair.
export default defineHandler({
  messageCode: 'test.left',
  body: z.object({ n: z.int() }),
  downstreams: {
    left: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.TEST_SINK}/left`, body: raw })
    }
  }
})
