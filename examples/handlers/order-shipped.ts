import { defineHandler, env, url, z } from 'ackbox/handler'

/**
 * One task for three downstreams: the shop over HTTP, the points service by Dubbo, all others by a Kafka topic.
 * It needs BROKER_DUBBO=tri://host and BROKER_KAFKA=kafka://host besides SHOP_URL, so it is not among the samples that
 * `npm start` runs: copy it into your handlers.
 */
export default defineHandler({
  messageCode: 'order.shipped',
  body: z.object({ orderId: z.string(), userId: z.string(), cents: z.int() }),
  downstreams: {
    shop: {
      transport: 'http',
      request: ({ body, raw }) => ({ url: url`${env.SHOP_URL}/orders/${body.orderId}/shipped`, body: raw }),
      needCallback: true,
      receiptTimeout: '30s'
    },
    'shop-points': {
      transport: 'dubbo',
      request: ({ body }) => ({
        service: 'ackbox.example.dubbo.Points',
        method: 'onShipped',
        args: [body]
      }),
      // A Dubbo method that returns normally counts as delivered, unless `accepted` is false for its result.
      accepted: ({ json }) => json?.taken === true,
      retry: { times: 5, backoff: '2s' }
    },
    'shop-events': {
      transport: 'kafka',
      // The key keeps the records of one order in sequence.
      request: ({ body, raw }) => ({ topic: 'order-shipped', key: body.orderId, value: raw }),
      needCallback: true,
      receiptTimeout: '30s'
    }
  }
})
