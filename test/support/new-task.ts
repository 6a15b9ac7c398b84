import type { NewTask } from '../../src/db/tasks.ts'
import { uuidv7 } from '../../src/domain/ids.ts'
import { taskRequest } from './task-request.ts'

type NewDelivery = NewTask['deliveries'][number]

/** A delivery that is claimed as its task is stored. */
export const newDelivery = (more: Partial<NewDelivery> = {}): NewDelivery => ({
  downstream: 'warehouse',
  skipped: false,
  claim: true,
  leaseMs: 20_000,
  tries: 10,
  needsReceipt: false,
  ...more
})

/** A task as `insertTasks` takes it, with one delivery. */
export function newTask(more: Partial<NewTask> = {}): NewTask {
  const id = more.id ?? uuidv7()
  const { body: _, ...request } = taskRequest({ taskNo: `no:${id}`, messageBody: '{}', contentHash: 'hash' })
  return { ...request, id, deliveries: [newDelivery()], ...more }
}
