// What the API answers.
export type TaskStatus = 'SENDING' | 'HANDLED' | 'FAILED' | 'DELETED' | 'PREPARED' | 'CANCELLED'

/** A task as Ackbox returns it. It has more members than those listed here. */
export interface TaskAnswer {
  taskNo: string
  messageCode: string
  sceneType: string
  status: TaskStatus
  createdAt: string
  deliveries: DeliveryAnswer[]
  messageBody?: unknown
  [member: string]: unknown
}
export interface DeliveryAnswer {
  downstream: string
  status: 'SENDING' | 'HANDLED' | 'FAILED' | 'DELETED'
  phase?: string
  reason?: string
  attempt: number
  [member: string]: unknown
}

/**
 * The result of one task of a batch. 201: new. 200: already known. 500: this task alone failed. 503: another process of Ackbox has its handler,
 * or that of a task before it. Both may be posted again with their taskNo. Otherwise a refusal with its code.
 */
export interface BatchResult {
  taskNo: string
  status: number
  task?: TaskAnswer
  code?: string
  detail?: string
  pointer?: string
}
