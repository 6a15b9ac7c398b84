// Every example works as it stands with the sample handlers, so that "Try it out" in /docs needs no editing.

const paid = { messageCode: 'order.paid', messageBody: { orderId: 'A-1001', cents: 4200 } }

export const taskExamples = {
  'An order was paid': { value: { taskNo: 'order-A-1001', ...paid } },
  'The same, in a minute': { value: { taskNo: 'order-A-1002', ...paid, delay: 60_000 } },
  'All members': {
    value: {
      taskNo: 'order-A-1003',
      ...paid,
      sceneType: 'vip',
      deliverStartTime: '2026-01-01T00:00:00Z',
      needCallback: true,
      retryTimes: 5,
      extend: { department: 'sales' }
    }
  },
  'Once for each order': { value: { ...paid, bizType: 'order', bizKey: 'A-1001', uniqueBiz: true } }
}

export const batchExamples = {
  'Two orders': {
    value: {
      tasks: [
        { taskNo: 'order-B-1', ...paid },
        { taskNo: 'order-B-2', ...paid }
      ]
    }
  },
  'One after the other': {
    value: {
      tasks: [
        { taskNo: 'order-C-1', ...paid },
        { taskNo: 'order-C-2', ...paid, after: ['order-C-1'] }
      ]
    }
  }
}

export const redeliverExamples = {
  'All that FAILED': { value: {} },
  'One downstream, even if HANDLED': { value: { downstream: 'warehouse', force: true } }
}

const lately = { downstream: 'warehouse', from: '2026-11-20T00:00:00Z', to: '2026-11-21T00:00:00Z' }

export const reconcileExamples = {
  'All that it has handled': { value: { ...lately, taskNos: ['order-A-1001', 'order-A-1002'] } },
  'A digest of all': { value: { ...lately, digest: { '': { count: 2, hash: 'f30f0ebf643ebf78' } } } },
  'Two of 256 buckets': {
    value: {
      ...lately,
      digest: { d2: { count: 1, hash: 'd2cc29667be0f797' }, '21': { count: 1, hash: '21c327d91fde48ef' } }
    }
  }
}

export const dryRunExamples = {
  'An order was paid': { value: { messageBody: paid.messageBody } }
}

export const receiptExamples = {
  Handled: { value: { taskNo: 'order-A-1001', messageCode: 'order.paid' } },
  'Come again later': {
    value: { taskNo: 'order-A-1001', messageCode: 'order.paid', result: 'RETRY', reason: 'out of stock' }
  }
}

export const pushExamples = {
  'All that wait': { value: {} },
  'One downstream': { value: { downstream: 'warehouse' } }
}

export const settleExamples = {
  'Mended by hand': { value: { status: 'HANDLED', reason: 'booked by hand in the warehouse' } },
  'Not wanted any more': {
    value: { status: 'DELETED', reason: 'the order was cancelled', downstream: 'warehouse' }
  },
  'Only if it is still FAILED': {
    value: { status: 'DELETED', reason: 'the order was cancelled', from: { warehouse: 'FAILED' } }
  }
}

export const releaseExamples = {
  'The task at the head': { value: { taskNo: 'order-A-1001' } },
  'Whichever is at the head': { value: {} }
}

export const redeliverAllExamples = {
  'How many would it be': { value: { filter: { downstream: 'warehouse' }, dryRun: true } },
  'What one downstream refused with 503': {
    value: { filter: { downstream: 'warehouse', reason: 'SEND_EXHAUSTED', lastReason: 'http_503' } }
  }
}

export const limitExamples = {
  'Slower for now': { value: { concurrency: 5, perSecond: 10 } },
  "Back to the handler's": { value: { concurrency: null, perSecond: null } }
}

export const signInExamples = { 'A key': { value: { key: 'ack_0123456789abcdef0123456789abcdef' } } }

export const archiveExamples = { 'A note': { value: { note: 'Their outage of Monday; they paid us back' } } }

export const keyExamples = { 'Somebody who looks': { value: { name: 'dashboard', scopes: ['ops:read'] } } }

export const alarmExamples = {
  'One that FAILED': {
    value: { taskNo: 'order-A-1001', downstream: 'warehouse', attempt: 10, kind: 'FAILED' }
  }
}
