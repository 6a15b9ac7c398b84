import { defineHandler, env, url, z } from 'ackbox/handler'

// The template for one messageCode: what producers may post, and who gets it how.
export default defineHandler({
  messageCode: 'hello',
  // Anything else is refused when it is posted.
  body: z.object({ name: z.string().min(1) }),
  downstreams: {
    greeter: {
      transport: 'http',
      request: ({ body, raw }) => ({ url: url`${env.HELLO_URL}/hello/${body.name}`, body: raw }),
      // HANDLED once the greeter has confirmed it with a receipt; a 2xx alone is not enough.
      needCallback: true,
      receiptTimeout: '10s',
      retry: { times: 10, backoff: ['1s', '5s', '30s'] }
    }
  }
})
