// One answer of each route about tasks, as the sample handlers give it: Swagger UI and readers of the OpenAPI see these.

/** By operationId, then by status. */
export type AnswerExamples = Readonly<Record<string, Readonly<Record<string, unknown>>>>

export const at = '2026-11-24T10:02:11.000Z'
export const accepted = '2026-11-24T10:02:10.712Z'
export const id = '0199a1b2-c3d4-7e5f-8a6b-0123456789ab'
export const node = 'node-1-6d2171'

const head = {
  taskNo: 'order-A-1001',
  messageCode: 'order.paid',
  sceneType: '',
  createdAt: accepted,
  createdBy: 'shop'
}
const handled = {
  downstream: 'warehouse',
  status: 'HANDLED',
  attempt: 1,
  triesLeft: 9,
  deliveredAt: '2026-11-24T10:02:10.790Z',
  handledAt: at,
  handledBy: 'receipt',
  updatedAt: at
}
const failed = {
  downstream: 'warehouse',
  status: 'FAILED',
  reason: 'SEND_EXHAUSTED',
  attempt: 10,
  triesLeft: 0,
  updatedAt: at
}
const ended = { downstream: 'warehouse', updatedAt: at }
const byHand = { handledBy: 'operator', updatedBy: 'ops-1' }
const open = {
  downstream: 'warehouse',
  status: 'SENDING',
  phase: 'IN_FLIGHT',
  attempt: 1,
  triesLeft: 9,
  nextActionAt: '2026-11-24T10:02:27.112Z',
  updatedAt: accepted
}
const waits = {
  ...open,
  phase: 'WAITING',
  nextActionAt: '2026-11-24T10:02:13.000Z',
  updatedAt: at
}
const sent = {
  handlerVersion: '5c0ffee5',
  transport: 'http',
  method: 'POST',
  target: 'https://warehouse.example.com/orders?token=[masked]',
  bytes: 20,
  sha256: '238186c045395ed9f8fe5eda2a253194a384bf392c8ba4a86bd8fdc4907a4d95'
}
const attempts = [
  {
    attempt: 1,
    outcome: 'failed',
    reason: 'http_503',
    status: 503,
    answer: 'closed for stocktaking',
    headers: [['content-type', 'text/plain']],
    address: '203.0.113.7:443',
    request: {
      ...sent,
      headerNames: ['content-type', 'webhook-id', 'webhook-timestamp', 'webhook-signature', 'ackbox-task-no']
    },
    ms: 26,
    node,
    startedAt: '2026-11-24T10:02:10.974Z'
  }
]
const last = { lastAttemptAt: '2026-11-24T10:02:10.974Z', lastReason: 'http_503', lastStatus: 503 }

const sending = { ...head, status: 'SENDING', deliveries: [open] }
const redelivered = { ...open, attempt: 11, updatedBy: 'ops-1' }
const prepared = { preparedAt: accepted, checks: 0, nextCheckAt: '2026-11-24T10:02:45.712Z' }

export const taskAnswers: AnswerExamples = {
  acceptTask: { 200: { ...head, status: 'HANDLED', deliveries: [handled] }, 201: sending },
  readRequest: {
    200: {
      taskNo: 'order-A-1001',
      downstream: 'warehouse',
      attempt: 2,
      ...sent,
      headers: [
        ['content-type', 'application/json'],
        ['webhook-signature', '[masked]']
      ],
      body: '{"orderId":"A-1001"}'
    }
  },
  acceptTasks: {
    200: {
      results: [
        { taskNo: 'order-A-1001', status: 201, task: sending },
        {
          taskNo: 'order-A-1002',
          type: 'urn:ackbox:problem:UNKNOWN_CODE',
          title: 'No handler for this messageCode',
          status: 422,
          code: 'UNKNOWN_CODE',
          detail: 'order.piad',
          pointer: '/tasks/1/messageCode'
        }
      ]
    }
  },
  readTask: {
    200: {
      ...head,
      status: 'SENDING',
      deliveries: [
        {
          ...waits,
          attempts,
          receipts: [],
          waitingFor: {
            code: 'NEXT_ATTEMPT',
            at: waits.nextActionAt,
            attempt: 2,
            last: { answer: '503', at },
            text: {
              en: 'Attempt 2 starts at 10:02:13 UTC: attempt 1 got 503 at 10:02:11 UTC.',
              zh: '第 2 次尝试将于 10:02:13 UTC 开始：第 1 次于 10:02:11 UTC 得到 503。'
            }
          }
        }
      ],
      messageBody: { orderId: 'A-1001', cents: 4_200 }
    }
  },
  listTasks: {
    200: { tasks: [{ ...head, status: 'FAILED', deliveries: [{ ...failed, ...last }] }], nextCursor: id }
  },
  deleteTask: {
    200: {
      ...head,
      status: 'DELETED',
      deliveries: [{ ...ended, status: 'DELETED', attempt: 1, triesLeft: 9, updatedBy: 'ops-1' }]
    }
  },
  redeliverTask: { 200: { ...head, status: 'SENDING', deliveries: [redelivered] } },
  pushTask: { 200: { ...head, status: 'SENDING', deliveries: [{ ...waits, updatedBy: 'ops-1' }] } },
  settleTask: {
    200: {
      ...head,
      status: 'HANDLED',
      deliveries: [{ ...ended, status: 'HANDLED', attempt: 10, triesLeft: 0, handledAt: at, ...byHand }]
    }
  },
  commitTask: { 200: sending },
  rollBackTask: {
    200: {
      ...head,
      status: 'CANCELLED',
      prepared: { preparedAt: accepted, checks: 0, endedAt: at, endedBy: 'shop' },
      deliveries: []
    }
  },
  checkTask: { 200: { ...head, status: 'PREPARED', prepared: { ...prepared, checks: 1 }, deliveries: [] } },
  receive: { 200: { taskNo: 'order-A-1001', status: 'HANDLED', applied: true } },
  listDeliveries: {
    200: { deliveries: [{ ...head, ...failed, ...last }], nextCursor: `${id}:warehouse` }
  },
  listAlarms: {
    200: {
      alarms: [
        {
          taskNo: 'order-A-1001',
          messageCode: 'order.paid',
          downstream: 'warehouse',
          attempt: 10,
          kind: 'FAILED',
          status: 'FAILED',
          reason: 'SEND_EXHAUSTED',
          createdAt: at,
          sentAt: '2026-11-24T10:02:11.812Z',
          tries: 1
        }
      ]
    }
  },
  resolveAlarm: { 200: { resolved: true } }
}
