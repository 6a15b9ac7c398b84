import { defineHandler, env, url, z } from 'ackbox/handler'

// The handler for one messageCode: the body that producers may post, and the downstreams that receive it.
export default defineHandler({
  messageCode: 'hello',
  // A POST with any other body is refused.
  body: z.object({ name: z.string().min(1) }),
  // If `request` gives its body as an object, a member that is undefined fails the attempt.
  strictBody: true,
  downstreams: {
    greeter: {
      transport: 'http',
      request: ({ body, raw }) => ({ url: url`${env.HELLO_URL}/hello/${body.name}`, body: raw }),
      // The delivery is HANDLED once the greeter confirms it with a receipt; a 2xx alone is not enough.
      needCallback: true,
      receiptTimeout: '10s',
      retry: { times: 10, backoff: ['1s', '5s', '30s'] }
    }
  }
})
