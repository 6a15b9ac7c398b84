import { defineHandler, env, url, z } from 'ackbox/handler'

const short = z.object({ short: z.literal(true) })

// A paid order goes to the warehouse, which confirms with a receipt once the parcel is on its way.
export default defineHandler({
  messageCode: 'order.paid',
  body: z.object({ orderId: z.string().min(1), cents: z.int().min(0) }),
  downstreams: {
    warehouse: {
      transport: 'http',
      request: ({ body, raw }) => ({ url: url`${env.WAREHOUSE_URL}/orders/${body.orderId}/paid`, body: raw }),
      // Many services answer 200 and say in the body how it went: {"code":500} is not delivered.
      accepted: ({ status, json }) => (status === 410 ? 'refused' : status === 200 && json?.code === 0),
      needCallback: true,
      receiptTimeout: '4s',
      retry: { times: 10, backoff: ['1s', '2s', '5s'] },
      limit: { concurrency: 50 }
    }
  },
  // Its data may say more than its result: short of stock is not handled yet, so it is tried again later.
  onReceipt: ({ receipt }) => (short.safeParse(receipt.data).success ? 'RETRY' : receipt.result)
})
