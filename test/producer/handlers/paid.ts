import { defineHandler, env, url, z } from 'ackbox/handler'

export default defineHandler({
  messageCode: 'order.paid',
  body: z.object({ total: z.int() }),
  checkBack: () => ({ url: url`${env.TEST_SHOP}/check` }),
  downstreams: {
    paid: { transport: 'http', request: ({ raw }) => ({ url: url`${env.TEST_SINK}/paid`, body: raw }) }
  }
})
