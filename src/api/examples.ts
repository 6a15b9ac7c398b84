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

export const receiptExamples = {
  Handled: { value: { taskNo: 'order-A-1001', messageCode: 'order.paid' } },
  'Come again later': {
    value: { taskNo: 'order-A-1001', messageCode: 'order.paid', result: 'RETRY', reason: 'out of stock' }
  }
}
