// One answer of each route for operators and the dashboard, as in answer-examples.ts.
import { accepted, at, id, node, type AnswerExamples } from './answer-examples.ts'
import { version } from '../runtime/package.ts'

const operation = {
  id,
  kind: 'redeliver',
  state: 'RUNNING',
  filter: { downstream: 'warehouse' },
  matched: 500,
  redelivered: 120,
  skipped: 0,
  createdAt: accepted,
  createdBy: 'ops-1',
  updatedAt: at
}
const stands = { HANDLED: 87, SENDING: 33 }
const downstream = {
  name: 'warehouse',
  transport: 'http',
  waiting: 1,
  inFlight: 0,
  awaitingReceipt: 3,
  blocked: 0,
  failed: 500,
  queued: 0,
  concurrency: 50,
  timeoutMs: 15_000
}
const counts = {
  accepted: 60,
  attempts: 62,
  failedAttempts: 2,
  firstTries: 60,
  firstDelivered: 59,
  handled: 58,
  direct: 57,
  failed: 1,
  failedLater: 1,
  exhausted: 1,
  p50Ms: 34.5,
  p99Ms: 1_120
}
const session = {
  signedIn: true,
  auth: true,
  version,
  name: 'ops-1',
  scopes: ['tasks:read', 'ops:read', 'ops:write'],
  messageCodes: null,
  csrf: 'cwmAJtXGV5dys6xz1uN94uQQy7s5IItJUj6RCvDCqQ0'
}
const key = { id: 'key_0123456789ab', name: 'dashboard', scopes: ['ops:read'] }

export const opsAnswers: AnswerExamples = {
  listHandlers: {
    200: {
      handlers: [
        {
          messageCode: 'order.paid',
          body: {
            type: 'object',
            properties: { orderId: { type: 'string' }, cents: { type: 'integer', minimum: 0 } },
            required: ['orderId', 'cents']
          },
          prepared: false,
          downstreams: [
            {
              name: 'warehouse',
              transport: 'http',
              needCallback: true,
              times: 10,
              receiptTimeoutMs: 4_000,
              concurrency: 50,
              timeoutMs: 15_000
            }
          ]
        }
      ]
    }
  },
  dryRun: {
    200: {
      messageCode: 'order.paid',
      taskNo: 'order.paid::6c1b0f3e5f7c8e0d2a4b6c8d0e2f4a6b',
      downstreams: [
        {
          downstream: 'warehouse',
          transport: 'http',
          needCallback: true,
          request: {
            method: 'POST',
            url: 'https://warehouse.example/orders/A-1001/paid',
            headers: { authorization: '[masked]' },
            body: '{"orderId":"A-1001","cents":4200}'
          }
        }
      ]
    }
  },
  listDownstreams: {
    200: {
      downstreams: [{ ...downstream, oldestDueAt: at, pausedAt: at, pausedBy: 'ops-1', mayChange: true }]
    }
  },
  pauseDownstream: { 200: { name: 'warehouse', paused: true } },
  resumeDownstream: { 200: { name: 'warehouse', paused: false } },
  setLimits: {
    200: {
      ...downstream,
      concurrency: 5,
      perSecond: 10,
      limits: { concurrency: 5, perSecond: 10, setAt: at, setBy: 'ops-1' },
      handlerLimits: { concurrency: 50 }
    }
  },
  listApiKeys: { 200: { apiKeys: [{ ...key, messageCodes: null, createdAt: accepted }] } },
  createApiKey: { 201: { id: key.id, key: 'ack_0123456789abcdef0123456789abcdef' } },
  revokeApiKey: { 200: { id: key.id } },
  listKeys: {
    200: {
      keys: [
        {
          downstream: 'warehouse',
          orderingKey: 'order-7',
          heldSince: at,
          waiting: 12,
          head: { taskNo: 'order-A-1001', messageCode: 'order.paid', status: 'FAILED', position: 41 },
          mayRelease: true
        }
      ]
    }
  },
  releaseKey: { 200: { downstream: 'warehouse', orderingKey: 'order-7', taskNo: 'order-A-1001' } },
  listAudit: {
    200: {
      audit: [
        {
          id: '42',
          at,
          who: 'ops-1',
          keyId: 'key_0123456789ab',
          what: 'task.settle',
          target: 'order-A-1001',
          detail: {
            reason: 'booked by hand in the warehouse',
            before: { warehouse: 'FAILED' },
            after: { warehouse: 'HANDLED' }
          }
        }
      ],
      nextCursor: '42'
    }
  },
  listNodes: {
    200: {
      nodes: [
        {
          id: node,
          roles: ['api', 'worker', 'dispatcher'],
          version,
          live: true,
          startedAt: accepted,
          seenAt: at,
          secret: 'd3bb88175a4a9b97',
          queue: 'postgres',
          handlers: '1 messageCodes, c1a1efe29e92',
          yielded: []
        }
      ]
    }
  },
  redeliverTasks: { 200: { dryRun: true, matched: 500 }, 202: { ...operation, redelivered: 0 } },
  listOperations: { 200: { operations: [operation] } },
  readOperation: { 200: { ...operation, deliveries: stands } },
  listOperationDeliveries: {
    200: {
      deliveries: [
        {
          taskNo: 'order-A-1001',
          messageCode: 'order.paid',
          downstream: 'warehouse',
          result: 'redelivered',
          status: 'HANDLED',
          attempt: 11,
          failedAgain: false
        }
      ]
    }
  },
  stopOperation: {
    200: { ...operation, state: 'STOPPED', deliveries: stands, endedAt: at, endedBy: 'ops-1' }
  },
  listRejected: {
    200: {
      rejected: [
        {
          id,
          taskNo: 'order-A-1001',
          messageCode: 'order.piad',
          bodyBytes: 34,
          createdBy: 'sql:shop',
          createdAt: accepted,
          rejectedAt: at,
          problem: {
            type: 'urn:ackbox:problem:UNKNOWN_CODE',
            title: 'No handler for this messageCode',
            status: 422,
            code: 'UNKNOWN_CODE',
            detail: 'order.piad'
          }
        }
      ]
    }
  },
  retryRejected: { 202: { id } },
  deleteRejected: { 200: { id } },
  nudgeOutbox: { 202: { nudged: true } },
  readStats: {
    200: {
      from: '2026-11-24T09:02:00.000Z',
      to: '2026-11-24T10:02:00.000Z',
      step: 60,
      series: [
        { downstream: 'warehouse', points: [{ at: '2026-11-24T10:01:00.000Z', ...counts }], total: counts }
      ]
    }
  },
  listFailures: {
    200: {
      failures: [
        {
          fingerprint: 'a0533bf09285757a',
          downstream: 'warehouse',
          reason: 'SEND_EXHAUSTED',
          status: 503,
          line: 'stock of order-# cannot be booked',
          failed: 500,
          failures: 512,
          again: 12,
          firstAt: accepted,
          lastAt: at,
          histogram: [...Array.from({ length: 22 }, () => 0), 180, 332],
          example: {
            taskNo: 'order-A-1001',
            messageCode: 'order.paid',
            answer: 'stock of order-A-1001 cannot be booked'
          },
          mayArchive: true
        }
      ]
    }
  },
  archiveFailure: { 200: { fingerprint: 'a0533bf09285757a' } },
  readSession: { 200: session },
  createSession: { 201: session },
  endSession: { 200: { signedIn: false, auth: true, version } },
  reconcile: {
    200: {
      differences: [
        { taskNo: 'order-A-1001', kind: 'MISSING', status: 'HANDLED', handledAt: at },
        { taskNo: 'order-A-1002', kind: 'DIFFERS', status: 'FAILED', reason: 'SEND_EXHAUSTED' }
      ]
    }
  },
  healthz: { 200: { status: 'ok' } },
  readyz: { 200: { status: 'ok', checks: { database: 'ok', queue: 'ok', draining: 'no' } } }
}
