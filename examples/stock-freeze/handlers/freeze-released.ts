import { defineHandler, env, url } from 'ackbox/handler'
import { placed, retry } from '../messages.ts'

/** The time limit of a freeze is over: its order is closed. */
export default defineHandler({
  messageCode: 'freeze.released',
  body: placed,
  downstreams: {
    orders: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.ORDERS_URL}/ackbox/freeze-released`, body: raw }),
      retry
    }
  }
})
