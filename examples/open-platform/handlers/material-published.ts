import { defineHandler, env, url, z } from 'ackbox/handler'

const retry: { times: number; backoff: ('500ms' | '1s' | '2s')[] } = {
  times: 100,
  backoff: ['500ms', '1s', '2s']
}

/** One material goes to four downstreams, each over its own transport or endpoint. */
export default defineHandler({
  messageCode: 'material.published',
  body: z.object({ material: z.int(), title: z.string() }),
  downstreams: {
    review: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.REVIEW_URL}/materials`, body: raw }),
      // A 2xx is not enough: the delivery is HANDLED when the review is done, which may be after the answer.
      needCallback: true,
      receiptTimeout: '5s',
      retry,
      limit: { timeout: '3s' }
    },
    search: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.SEARCH_URL}/materials`, body: raw }),
      needCallback: true,
      receiptTimeout: '5s',
      retry,
      limit: { timeout: '3s' }
    },
    library: {
      transport: 'dubbo',
      request: ({ body }) => ({
        service: 'ackbox.example.library.Library',
        method: 'onMaterial',
        args: [body],
        parameters: 1
      }),
      // A method that returns normally counts as delivered, unless `accepted` is false for its result.
      accepted: ({ json }) => json?.shelved === true,
      retry,
      limit: { timeout: '3s' }
    },
    feed: {
      transport: 'kafka',
      request: ({ body, raw }) => ({ topic: 'materials', key: String(body.material), value: raw }),
      retry,
      limit: { timeout: '3s' }
    }
  }
})
