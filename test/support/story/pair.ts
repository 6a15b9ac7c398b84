import { defineHandler, env, url, z } from 'ackbox/handler'

export default defineHandler({
  messageCode: 'test.pair',
  body: z.object({ n: z.int() }),
  downstreams: {
    left: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.TEST_SINK}/left`, body: raw })
    },
    right: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.TEST_SINK}/right`, body: raw })
    }
  }
})
