import { defineHandler, env, url } from 'ackbox/handler'
import { transferSchema } from '../transfer.ts'

const retry = { times: 100, backoff: ['200ms' as const, '500ms' as const, '1s' as const] }

/** Delivers a transfer to the other bank. sceneType names the bank that sent it: the check of a half message goes to that bank. */
export default defineHandler({
  messageCode: 'transfer.sent',
  body: transferSchema,
  checkBack: ({ task }) => ({
    url: url`${task.sceneType === 'a' ? env.BANK_A_URL : env.BANK_B_URL}/ackbox/check`
  }),
  downstreams: {
    'bank-a': {
      transport: 'http',
      when: ({ body }) => body.toBank === 'a',
      request: ({ raw }) => ({ url: url`${env.BANK_A_URL}/ackbox/transfers`, body: raw }),
      retry
    },
    'bank-b': {
      transport: 'http',
      when: ({ body }) => body.toBank === 'b',
      request: ({ raw }) => ({ url: url`${env.BANK_B_URL}/ackbox/transfers`, body: raw }),
      retry
    }
  }
})
