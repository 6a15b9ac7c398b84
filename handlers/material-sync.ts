import { defineHandler, env, url, z } from 'ackbox/handler'

// An open platform tells four services about a changed material. Two of them work on it for a while and confirm with a
// receipt; for the other two a 2xx is enough. Each is delivered, retried and limited on its own.
export default defineHandler({
  messageCode: 'material.sync',
  body: z.object({
    materialId: z.string().min(1),
    version: z.int().min(1),
    change: z.enum(['created', 'updated', 'removed']),
    title: z.string().optional()
  }),
  downstreams: {
    review: {
      transport: 'http',
      request: ({ body, raw }) => ({
        url: url`${env.REVIEW_URL}/materials/${body.materialId}/review`,
        body: raw
      }),
      // What is removed needs no review: that delivery is SKIPPED.
      when: ({ body }) => body.change !== 'removed',
      needCallback: true,
      receiptTimeout: '5s',
      retry: { times: 10, backoff: ['1s', '2s', '5s'] },
      limit: { concurrency: 20 }
    },
    ads: {
      transport: 'http',
      request: ({ body, raw }) => ({
        url: url`${env.ADS_URL}/materials/${body.materialId}`,
        method: 'PUT',
        body: raw
      }),
      needCallback: true,
      receiptTimeout: '5s',
      retry: { times: 10, backoff: ['1s', '2s', '5s'] },
      limit: { concurrency: 50 }
    },
    search: {
      transport: 'http',
      request: ({ body, raw }) => ({
        url: url`${env.SEARCH_URL}/index/${body.materialId}`,
        method: 'PUT',
        body: raw
      }),
      retry: { times: 10, backoff: ['1s', '2s', '5s'] },
      limit: { concurrency: 50 }
    },
    reports: {
      transport: 'http',
      // A request need not be the body that was posted.
      request: ({ body, task }) => ({
        url: url`${env.REPORTS_URL}/facts`,
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({
          fact: 'material',
          id: body.materialId,
          change: body.change,
          at: task.createdAt
        })
      }),
      retry: { times: 10, backoff: '2s' },
      limit: { concurrency: 10, perSecond: 200 }
    }
  }
})
