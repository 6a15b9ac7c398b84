// The requests that a handler would send, without sending them. Only the handler object is real.
import t from 'tap'
import { z } from 'zod'
import { url } from '../../src/handler/define.ts'
import { dryRun } from '../../src/delivery/dry-run.ts'
import type { LoadedDownstream, LoadedHandler } from '../../src/handler/loaded.ts'
import { taskRequest } from '../support/task-request.ts'

const secret = 'k3y-of-the-warehouse'
const policy: LoadedDownstream['policy'] = {
  times: 3,
  backoff: { kind: 'list', ms: [1_000] },
  receiptTimeoutMs: 1_000
}
const to = (name: string, more: Partial<LoadedDownstream>): LoadedDownstream => ({
  name,
  transport: 'http',
  request: () => ({ url: 'http://127.0.0.1/x' }),
  policy,
  limit: { concurrency: 1, timeoutMs: 1_000 },
  ...more
})

t.test('each downstream of the handler, with its request, and without what logs in', async t => {
  const beforeSend = () => t.fail('it may do something') as never
  const handler: LoadedHandler = {
    messageCode: 'order.paid',
    file: 'order-paid.ts',
    body: z.object({ orderId: z.string() }),
    downstreams: [
      to('warehouse', {
        needCallback: true,
        beforeSend,
        request: ({ raw }) => ({
          url: `https://127.0.0.1/orders?key=short&token=${secret}&n=1`,
          headers: { Authorization: `Bearer ${secret}`, 'x-shop': 'a', 'x-trace': `of ${secret}` },
          body: raw
        })
      }),
      to('mail', { request: () => ({ url: 'http://127.0.0.1/mail', body: `login with setting-4711` }) }),
      to('stream', {
        transport: 'kafka',
        request: () => ({ broker: 'main', topic: 'orders', key: 'order-7', value: new Uint8Array(5) })
      }),
      to('skips', { when: () => false }),
      to('asks', { when: () => Promise.reject(new Error('no answer')) as never }),
      to('throws', {
        request: () => {
          throw new Error(`no price in ${secret}${'!'.repeat(160)}${secret}`)
        }
      }),
      to('away', { request: () => ({ url: url`http://10.0.0.1/x` }) })
    ]
  }
  const deps = {
    handlers: new Map([['order.paid', handler]]),
    refused: (url: string) => (url.includes('10.0.0.1') ? 'a private address' : undefined),
    settings: { ORDER_SERVICE_KEY: secret, MAIL_PASSWORD: 'setting-4711', SHOP: 'a' },
    log: { warn: () => {} }
  }
  const about = { taskNo: 'test-1', messageCode: 'order.paid', body: { orderId: 'A-1' } }
  const made = await dryRun(deps, taskRequest({ ...about, messageBody: '{"orderId":"A-1"}' }))
  t.same(made, {
    messageCode: 'order.paid',
    taskNo: 'test-1',
    downstreams: [
      {
        downstream: 'warehouse',
        transport: 'http',
        needCallback: true,
        request: {
          method: 'POST',
          body: '{"orderId":"A-1"}',
          url: 'https://127.0.0.1/orders?key=[masked]&token=[masked]&n=1',
          headers: { Authorization: '[masked]', 'x-shop': 'a', 'x-trace': 'of [masked]' }
        }
      },
      {
        downstream: 'mail',
        transport: 'http',
        needCallback: false,
        request: { method: 'POST', url: 'http://127.0.0.1/mail', body: 'login with [masked]' }
      },
      {
        downstream: 'stream',
        transport: 'kafka',
        needCallback: false,
        request: { broker: 'main', topic: 'orders', key: 'order-7', value: '5 bytes' }
      },
      { downstream: 'skips', transport: 'http', needCallback: false, skipped: true },
      {
        downstream: 'asks',
        transport: 'http',
        needCallback: false,
        warning:
          'the task is sent although its when failed: when must return true or false, and returned a Promise',
        request: { method: 'POST', body: '{"orderId":"A-1"}', url: 'http://127.0.0.1/x' }
      },
      {
        downstream: 'throws',
        transport: 'http',
        needCallback: false,
        error: `no price in [masked]${'!'.repeat(160)}[masked]`
      },
      {
        downstream: 'away',
        transport: 'http',
        needCallback: false,
        request: { method: 'POST', body: '{"orderId":"A-1"}', url: 'http://10.0.0.1/x' },
        error: 'a private address'
      }
    ]
  })
  t.match(await dryRun(deps, taskRequest({ ...about, body: {}, messageBody: '{}' })), {
    kind: 'invalid',
    pointer: '/messageBody/orderId'
  })
  t.equal(await dryRun(deps, taskRequest({ ...about, messageCode: 'nobody.knows' })), 'unknown_code')
})
