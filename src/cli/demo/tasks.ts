import type { Kind } from '../../demo/behaviour.ts'

/** A task that the demo posts, and its expected end. */
export interface DemoTask {
  post: { taskNo: string; messageCode: string; sceneType: string; messageBody: object; retryTimes?: number }
  ends: 'HANDLED' | 'FAILED'
  /** The expected reason of the FAILED delivery. */
  reason?: string
}

/** One of each in every 200 tasks: four that fail on purpose, and three that are handled after a difficulty. */
const special = new Map<number, { kind: Kind; reason?: string; retryTimes?: number }>([
  [7, { kind: 'POISON', reason: 'SEND_EXHAUSTED', retryTimes: 4 }],
  [27, { kind: 'SILENT', reason: 'RECEIPT_TIMEOUT', retryTimes: 3 }],
  [47, { kind: 'REFUSE', reason: 'REFUSED' }],
  [67, { kind: 'BROKEN', reason: 'RECEIPT_FAILED' }],
  [87, { kind: 'AGAIN' }],
  [107, { kind: 'SHORT' }],
  [127, { kind: 'LATE' }]
])
const changes = ['created', 'updated', 'updated', 'removed']

/** Task `i` of a run. Ten tasks are three orders, two materials and five audit events. `run` is their sceneType. */
export function demoTask(run: string, i: number): DemoTask {
  const taskNo = `${run}-${i}`
  const digit = i % 10
  const base = { taskNo, sceneType: run }
  if ([1, 4, 7].includes(digit)) {
    const { kind, reason, retryTimes } = special.get(i % 200) ?? {}
    const messageBody = { orderId: `${kind ?? 'order'}-${i}`, cents: 100 + ((i * 37) % 9_900) }
    return {
      post: { ...base, messageCode: 'order.paid', messageBody, ...(retryTimes ? { retryTimes } : {}) },
      ends: reason ? 'FAILED' : 'HANDLED',
      ...(reason ? { reason } : {})
    }
  }
  if ([2, 8].includes(digit)) {
    const messageBody = {
      materialId: `m-${i}`,
      version: 1 + (i % 5),
      change: changes[(i % 7) % 4],
      title: `素材 ${i}`
    }
    return { post: { ...base, messageCode: 'material.sync', messageBody }, ends: 'HANDLED' }
  }
  return {
    post: { ...base, messageCode: 'audit.log', messageBody: { who: `user-${i % 50}`, did: 'log in', no: i } },
    ends: 'HANDLED'
  }
}
