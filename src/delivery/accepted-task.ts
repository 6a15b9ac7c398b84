import type { Task } from '../domain/types.ts'
import type { LoadedDelivery } from '../db/deliveries.ts'
import type { NewDelivery } from '../db/new-deliveries.ts'
import type { InsertResult, NewTask } from '../db/tasks.ts'
import { placeView, taskStatus, type DeliveryView, type PreparedView, type TaskView } from '../db/views.ts'
import { present } from '../domain/optional-members.ts'

/** A task that was just committed, as the API shows it. It is built from the written values, without reading them back. */
export function createdView(
  task: NewTask,
  { at, inFlight, places }: Extract<InsertResult, { kind: 'created' }>,
  extend: string | null
): TaskView {
  // The delay of a half message counts from its commit.
  const start = task.prepared ? task.startAt : startOf(task, at)
  const due = start && start > at ? start : at
  const updatedAt = at.toISOString()
  const deliveries = task.deliveries.map((delivery, index): DeliveryView => {
    const claimed = inFlight.includes(index)
    if (delivery.skipped) {
      return {
        downstream: delivery.downstream,
        status: 'DELETED',
        reason: 'SKIPPED',
        attempt: 0,
        triesLeft: delivery.tries,
        updatedAt
      }
    }
    const place = places?.[index]
    const isBlocked = place?.isBlocked ?? (task.after !== undefined && task.after !== null)
    return {
      downstream: delivery.downstream,
      status: 'SENDING',
      phase: claimed ? 'IN_FLIGHT' : isBlocked ? 'BLOCKED' : 'WAITING',
      attempt: claimed ? 1 : 0,
      triesLeft: claimed ? delivery.tries - 1 : delivery.tries,
      updatedAt,
      ...placeView(place?.position),
      ...(isBlocked
        ? {}
        : { nextActionAt: (claimed ? new Date(at.getTime() + delivery.leaseMs) : due).toISOString() })
    }
  })
  return {
    taskNo: task.taskNo,
    messageCode: task.messageCode,
    sceneType: task.sceneType,
    status: task.prepared ? 'PREPARED' : taskStatus(deliveries),
    createdAt: (task.committed?.createdAt ?? at).toISOString(),
    ...present('deliverStartTime', start?.toISOString()),
    ...present('deliverBefore', task.deliverBefore?.toISOString()),
    ...present('needCallback', task.needCallback),
    ...present('retryTimes', task.retryTimes),
    ...present('orderingKey', task.orderingKey),
    ...(extend === null ? {} : { extend: JSON.parse(extend) as unknown }),
    createdBy: task.createdBy,
    ...bizView(task.biz),
    ...present('after', task.after && [...task.after.taskNos]),
    ...present('prepared', task.prepared && preparedAt(at, task.prepared.checkAfterMs)),
    deliveries
  }
}

const bizView = (biz: NewTask['biz']) =>
  biz ? { bizType: biz.type, bizKey: biz.key, ...present('uniqueBiz', biz.unique || null) } : {}

const preparedAt = (at: Date, checkAfterMs: number): PreparedView => ({
  preparedAt: at.toISOString(),
  checks: 0,
  nextCheckAt: new Date(at.getTime() + checkAfterMs).toISOString()
})

const startOf = ({ startAt, delayMs }: NewTask, at: Date): Date | null =>
  startAt ?? (delayMs === null ? null : new Date(at.getTime() + delayMs))

/** The task as handlers and hooks see it. `at`: the time when it is stored. */
export const acceptedTaskOf = (task: NewTask, at: Date): Task => ({
  id: task.id,
  taskNo: task.taskNo,
  messageCode: task.messageCode,
  sceneType: task.sceneType,
  messageBody: task.messageBody,
  deliverStartTime: startOf(task, at),
  needCallback: task.needCallback,
  retryTimes: task.retryTimes,
  orderingKey: task.orderingKey ?? null,
  extend: task.extend === null ? null : (JSON.parse(task.extend) as unknown),
  traceparent: task.traceparent,
  createdAt: task.committed?.createdAt ?? at,
  createdBy: task.createdBy
})

/** A delivery that was just committed with its first claim, as a worker would read it. */
export function acceptedDeliveryOf(
  task: NewTask,
  delivery: NewDelivery,
  { at, places }: Extract<InsertResult, { kind: 'created' }>,
  index: number
): LoadedDelivery {
  return {
    task: acceptedTaskOf(task, at),
    downstream: delivery.downstream,
    attempt: 1,
    roundFrom: 1,
    triesLeft: delivery.tries - 1,
    lost: 0,
    needsReceipt: delivery.needsReceipt,
    leaseLeftMs: delivery.leaseMs,
    claimedMs: 0,
    deliverBeforeLeftMs: task.deliverBefore === null ? null : task.deliverBefore.getTime() - at.getTime(),
    position: places?.[index]?.position ?? null,
    round: 1,
    roundAt: at,
    roundMs: 0
  }
}
