import { defineHandler, env, url, z } from 'ackbox/handler'

// Many small events to one fast service: no receipt, a 2xx is enough, and many requests at once.
export default defineHandler({
  messageCode: 'audit.log',
  body: z.object({ who: z.string(), did: z.string() }).loose(),
  downstreams: {
    audit: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.AUDIT_URL}/events`, body: raw }),
      retry: { times: 10, backoff: ['1s', '2s', '5s', '30s'] },
      limit: { concurrency: 200 }
    }
  }
})
