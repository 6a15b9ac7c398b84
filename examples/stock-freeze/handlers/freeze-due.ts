import { defineHandler, env, url } from 'ackbox/handler'
import { freezeDue, retry } from '../messages.ts'

/** Releases one unsold freeze: posted together with it, delivered when its time limit is over. */
export default defineHandler({
  messageCode: 'freeze.due',
  body: freezeDue,
  downstreams: {
    stock: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.STOCK_URL}/ackbox/freeze-due`, body: raw }),
      retry
    }
  }
})
