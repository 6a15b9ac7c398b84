import { defineHandler, env, url, z } from 'ackbox/handler'

export default defineHandler({
  messageCode: 'test.throwing',
  body: z.object({}),
  downstreams: {
    plain: {
      transport: 'http',
      request({ raw }) {
        setImmediate(() => {
          throw new Error('in a callback')
        })
        return { url: url`${env.TEST_SINK}/plain`, body: raw }
      }
    }
  }
})
