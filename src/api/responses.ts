import { z } from 'zod'
import {
  alarmKinds,
  checkAnswers,
  handledBys,
  phases,
  reasons,
  receiptResults,
  statusNumber,
  taskStatuses,
  type Status
} from '../domain/types.ts'
import { problems, type ProblemCode } from '../runtime/errors.ts'

// The output schemas, for the OpenAPI and for the tests, which check every answer against them.

const status = z.enum(Object.keys(statusNumber) as [Status, ...Status[]])
const time = z.string().meta({ format: 'date-time' })

export const problemAnswer = z
  .strictObject({
    type: z.string(),
    title: z.string(),
    status: z.int(),
    code: z.enum(Object.keys(problems) as [ProblemCode, ...ProblemCode[]]),
    detail: z.string().optional(),
    pointer: z
      .string()
      .optional()
      .describe('JSON pointer to the member that is to blame; ?/name in a query.'),
    errors: z
      .array(z.strictObject({ detail: z.string(), pointer: z.string() }))
      .optional()
      .describe('Everything that is wrong, at most 20, where it is more than one thing.')
  })
  .meta({ id: 'Problem', description: 'RFC 9457. `code` is stable.' })

const attempt = z
  .looseObject({
    attempt: z.int(),
    outcome: z.string(),
    reason: z.string().optional(),
    status: z.int().optional(),
    answer: z.string().optional(),
    address: z.string().optional(),
    warning: z.string().optional(),
    ms: z.number(),
    node: z.string(),
    startedAt: time
  })
  .meta({ id: 'Attempt' })

const receipt = z
  .looseObject({
    attempt: z.int(),
    result: z.enum(receiptResults),
    reason: z.string().optional(),
    data: z.unknown().optional(),
    applied: z.boolean(),
    late: z.boolean(),
    createdAt: time
  })
  .meta({ id: 'Receipt' })

const delivery = z
  .looseObject({
    downstream: z.string(),
    status,
    phase: z.enum(phases).optional(),
    reason: z.enum(reasons).optional(),
    attempt: z.int().describe('Number of the last attempt; only rises.'),
    triesLeft: z.int(),
    nextActionAt: time.optional(),
    deliveredAt: time.optional(),
    handledAt: time.optional(),
    handledBy: z.enum(handledBys).optional(),
    updatedBy: z.string().optional().describe('The key that redelivered or deleted it last.'),
    attempts: z.array(attempt).optional(),
    receipts: z.array(receipt).optional()
  })
  .meta({ id: 'Delivery' })

const prepared = z
  .looseObject({
    preparedAt: time,
    checks: z.int().describe('How often its producer was asked.'),
    nextCheckAt: time.optional(),
    lastAnswer: z.enum(checkAnswers).optional().describe('NONE: nothing that can be understood.'),
    lastReason: z.string().optional().describe('Why it is none.'),
    lastCheckedAt: time.optional(),
    endedAt: time.optional(),
    endedBy: z.string().optional().describe('Name of a key, or check: and the number of that check.')
  })
  .meta({ id: 'Prepared' })

export const taskAnswer = z
  .looseObject({
    taskNo: z.string(),
    messageCode: z.string(),
    sceneType: z.string(),
    status: z
      .enum(taskStatuses)
      .describe('PREPARED: neither committed nor rolled back yet. CANCELLED: rolled back.'),
    createdAt: time,
    deliverStartTime: time.optional(),
    deliverBefore: time.optional(),
    needCallback: z.boolean().optional(),
    retryTimes: z.int().optional(),
    extend: z.unknown().optional(),
    createdBy: z.string().optional(),
    bizType: z.string().optional(),
    bizKey: z.string().optional(),
    uniqueBiz: z.boolean().optional(),
    after: z
      .array(z.string())
      .optional()
      .describe('The tasks it waits for, or waited for. Where one task is read or posted.'),
    before: z
      .array(z.string())
      .optional()
      .describe('Tasks that were posted to wait for it, at most 100. Only where one task is read.'),
    messageBody: z
      .unknown()
      .optional()
      .meta({ description: 'The very text that was posted; only where one task is read.' }),
    prepared: prepared
      .optional()
      .describe('Of one that was posted as prepared; who has just committed it is answered without.'),
    deliveries: z.array(delivery)
  })
  .meta({ id: 'Task' })

const more = { nextCursor: z.string().optional() }
export const tasksAnswer = z.strictObject({ tasks: z.array(taskAnswer), ...more })
export const deliveriesAnswer = z.strictObject({
  deliveries: z.array(z.looseObject({ taskNo: z.string(), messageCode: z.string(), ...delivery.shape })),
  ...more
})
export const alarmsAnswer = z.strictObject({
  alarms: z.array(
    z.looseObject({
      taskNo: z.string(),
      downstream: z.string(),
      attempt: z.int(),
      kind: z.enum(alarmKinds),
      createdAt: time,
      sentAt: time.optional(),
      resolvedAt: time.optional()
    })
  ),
  ...more
})
export const batchAnswer = z.strictObject({
  results: z.array(
    z.looseObject({
      taskNo: z.string().optional(),
      status: z.int().describe('201 created, 200 the same again, or that of a problem: 403, 409, 413, 422.'),
      task: taskAnswer.optional(),
      code: z.string().optional(),
      detail: z.string().optional(),
      pointer: z.string().optional()
    })
  )
})
export const receiptAnswer = z.strictObject({
  taskNo: z.string(),
  status,
  applied: z.boolean().describe('false: it changed nothing; kept all the same.'),
  late: z.boolean().optional().describe('true: it came after FAILED, and made it HANDLED.')
})
export const handlersAnswer = z.strictObject({
  handlers: z.array(z.looseObject({ messageCode: z.string() }))
})
export const downstreamsAnswer = z.strictObject({ downstreams: z.array(z.looseObject({ name: z.string() })) })
export const pausedAnswer = z.strictObject({ name: z.string(), paused: z.boolean() })
export const rejectedAnswer = z.strictObject({
  rejected: z.array(
    z.looseObject({
      id: z.string(),
      taskNo: z.string().optional(),
      messageCode: z.string().optional(),
      bodyBytes: z.int(),
      createdBy: z.string().describe('`sql:` and the role that enqueued it.'),
      createdAt: time,
      rejectedAt: time,
      problem: problemAnswer
    })
  ),
  ...more
})
export const removedAnswer = z.strictObject({ id: z.string() })
export const nudgedAnswer = z.strictObject({ nudged: z.boolean() })
export const healthAnswer = z.strictObject({
  status: z.string(),
  checks: z.record(z.string(), z.string()).optional()
})

/** The problems that a route may answer with, by status, with their codes. Any route may get a foreign Host. */
export function refusals(...codes: ProblemCode[]) {
  const byStatus = new Map<number, ProblemCode[]>()
  for (const code of [...codes, 'MISDIRECTED'] as const)
    byStatus.set(problems[code][0], [...(byStatus.get(problems[code][0]) ?? []), code])
  return Object.fromEntries(
    [...byStatus].map(([number, some]) => [
      number,
      {
        description: some.map(code => `${code}: ${problems[code][1]}`).join('. '),
        content: { 'application/problem+json': { schema: problemAnswer } }
      }
    ])
  )
}
