import type { TaskRequest } from '../../src/delivery/accept.ts'

let posted = 0

/** A task request as the API passes it to `accept`. */
export function taskRequest(more: Partial<TaskRequest> = {}): TaskRequest {
  const messageBody = more.messageBody ?? `{"orderId":"${++posted}"}`
  return {
    taskNo: `order:${++posted}`,
    messageCode: 'order.paid',
    sceneType: '',
    messageBody,
    body: JSON.parse(messageBody) as unknown,
    contentHash: `hash of ${messageBody}`,
    startAt: null,
    delayMs: null,
    deliverBefore: null,
    needCallback: null,
    retryTimes: null,
    extend: null,
    traceparent: null,
    createdBy: 'test',
    ...more
  }
}
