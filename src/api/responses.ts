import { z } from 'zod'
import { alarmKinds, differenceKinds, phases, reasons, taskStatuses } from '../domain/types.ts'
import { problems, type ProblemCode } from '../runtime/errors.ts'
import { deliveryAnswer, natural, status, taskAnswer, time } from './task-answer.ts'

// The output schemas, for the OpenAPI and for the tests, which check every answer against them.

export const problemAnswer = z
  .strictObject({
    type: z.string(),
    title: z.string(),
    status: natural,
    code: z.enum(Object.keys(problems) as [ProblemCode, ...ProblemCode[]]),
    detail: z.string().optional(),
    pointer: z
      .string()
      .optional()
      .describe('JSON pointer to the wrong member; ?/name for a query parameter.'),
    errors: z
      .array(z.strictObject({ detail: z.string(), pointer: z.string() }))
      .optional()
      .describe('All errors, at most 20, if there is more than one.')
  })
  .meta({ id: 'Problem', description: 'RFC 9457. `code` is stable.' })

const more = { nextCursor: z.string().optional() }
/** For lists that read at most 20,000 rows. */
const looked = {
  ...more,
  partial: z
    .literal(true)
    .optional()
    .describe('Not all rows were read. There may be more behind nextCursor, even if this page is empty.')
}
export const tasksAnswer = z.strictObject({ tasks: z.array(taskAnswer), ...looked })
export const deliveriesAnswer = z.strictObject({
  deliveries: z.array(
    z.looseObject({
      taskNo: z.string(),
      messageCode: z.string(),
      ...deliveryAnswer.shape,
      blocker: z
        .looseObject({ taskNo: z.string(), status: z.enum(taskStatuses), orderingKey: z.string().optional() })
        .optional()
        .describe('What a BLOCKED one waits for, the first of it.')
    })
  ),
  ...looked
})
export const alarmsAnswer = z.strictObject({
  alarms: z.array(
    z.looseObject({
      taskNo: z.string(),
      downstream: z.string(),
      attempt: natural,
      kind: z.enum(alarmKinds),
      createdAt: time,
      sentAt: time.optional(),
      resolvedAt: time.optional()
    })
  ),
  ...more
})
export const keysAnswer = z.strictObject({
  keys: z.array(
    z.looseObject({
      downstream: z.string(),
      orderingKey: z.string(),
      heldSince: time.optional(),
      waiting: natural.describe('Deliveries behind the head, counted up to 10,000.'),
      head: z
        .looseObject({ taskNo: z.string(), messageCode: z.string(), status, position: natural })
        .optional()
        .describe('The delivery that runs, or that FAILED and holds the key.'),
      mayRelease: z.boolean().describe('Whether the caller may release it, if it is held.')
    })
  ),
  ...more
})
export const releasedAnswer = z.strictObject({
  downstream: z.string(),
  orderingKey: z.string(),
  taskNo: z.string().optional().describe('The task whose delivery held the key.')
})
export const batchAnswer = z.strictObject({
  results: z.array(
    z.looseObject({
      taskNo: z.string().optional(),
      status: natural.describe(
        '201: created. 200: accepted before. Others are problems: 403, 409, 413, 422; 500 if this task alone failed, 503 if another process has its handler or that of a task before it: both may be posted again.'
      ),
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
  applied: z.boolean().describe('false: it changed nothing, but was stored.'),
  late: z.boolean().optional().describe('true: the delivery was FAILED and became HANDLED.')
})
export const handlersAnswer = z.strictObject({
  handlers: z.array(z.looseObject({ messageCode: z.string() }))
})
export const dryRunAnswer = z.strictObject({
  messageCode: z.string(),
  taskNo: z.string(),
  downstreams: z.array(
    z.looseObject({
      downstream: z.string(),
      transport: z.string(),
      needCallback: z.boolean(),
      skipped: z.literal(true).optional().describe('Its `when` says false: it gets none.'),
      request: z
        .looseObject({})
        .optional()
        .describe('As the handler makes it. The headers of Ackbox come to it.'),
      warning: z.string().optional().describe('Its `when` failed. The task is sent anyway.'),
      error: z.string().optional().describe('Why the attempt would fail.')
    })
  )
})
export const downstreamsAnswer = z.strictObject({
  downstreams: z.array(
    z.looseObject({
      name: z.string(),
      mayChange: z.boolean().describe('Whether the caller may pause, resume and limit it.')
    })
  )
})
export const pausedAnswer = z.strictObject({ name: z.string(), paused: z.boolean() })
export const rejectedAnswer = z.strictObject({
  rejected: z.array(
    z.looseObject({
      id: z.string(),
      taskNo: z.string().optional(),
      messageCode: z.string().optional(),
      bodyBytes: natural,
      createdBy: z.string().describe('`sql:` and the role that enqueued it.'),
      createdAt: time,
      rejectedAt: time,
      problem: problemAnswer
    })
  ),
  ...more
})
const counts = {
  accepted: natural,
  attempts: natural,
  failedAttempts: natural,
  firstTries: natural.describe('First tries of deliveries that ended.'),
  firstDelivered: natural.describe('First tries that the downstream took.'),
  handled: natural,
  direct: natural.describe('HANDLED at the first try.'),
  failed: natural,
  failedLater: natural.describe('FAILED after more than one try.'),
  exhausted: natural.describe('FAILED after all their tries.'),
  p50Ms: z
    .number()
    .optional()
    .describe(
      'Time from acceptance, or from the start time, to HANDLED. What an operator settled is left out. Interpolated in a histogram, and never outside of the shortest and the longest time.'
    ),
  p99Ms: z.number().optional()
}
export const statsAnswer = z.strictObject({
  from: time.describe('The start of the first minute that is counted.'),
  to: time.describe('The end of the last minute that is counted. It may be in the future.'),
  step: natural.describe('Seconds per point.'),
  series: z.array(
    z.strictObject({
      downstream: z.string().optional(),
      points: z
        .array(z.strictObject({ at: time, ...counts }))
        .describe('Oldest first. Points without events are omitted.'),
      total: z.strictObject(counts)
    })
  )
})
export const failuresAnswer = z.strictObject({
  failures: z.array(
    z.strictObject({
      fingerprint: z.string(),
      downstream: z.string(),
      reason: z.enum(reasons),
      status: natural.optional(),
      line: z
        .string()
        .optional()
        .describe(
          'First line of the answer, of the error, or of the reason in the receipt. Numbers and ids are shown as #.'
        ),
      failed: natural.describe('Deliveries that are FAILED now.'),
      failures: natural.describe('Number of failures.'),
      again: natural.describe('Failures after a redelivery.'),
      firstAt: time,
      lastAt: time,
      histogram: z.array(natural).describe('Failures in each 24th of the requested time.'),
      example: z.strictObject({ taskNo: z.string(), messageCode: z.string(), answer: z.string().optional() }),
      archived: z.strictObject({ note: z.string(), at: time, by: z.string() }).optional(),
      mayArchive: z.boolean().describe('Whether the caller may archive it.')
    })
  ),
  partial: z.boolean().optional().describe('true: older failures were not read, or there are more groups.')
})
export const differencesAnswer = z
  .strictObject({
    differences: z.array(
      z.looseObject({
        taskNo: z.string(),
        kind: z
          .enum(differenceKinds)
          .describe(
            'MISSING: HANDLED here, but not in taskNos. DIFFERS: in taskNos, but not HANDLED here. UNKNOWN: in taskNos, but no delivery of it goes to this downstream.'
          ),
        status: status.optional().describe('Its status here.'),
        phase: z.enum(phases).optional(),
        reason: z.enum(reasons).optional(),
        handledAt: time.optional()
      })
    ),
    ...more
  })
  .meta({ id: 'Differences' })
export const digestsAnswer = z
  .strictObject({
    buckets: z.array(
      z.looseObject({
        bucket: z.string(),
        same: z.boolean(),
        count: natural.describe('Counts of tasks that are HANDLED here.'),
        hash: z.string()
      })
    )
  })
  .meta({ id: 'Digests' })
export const removedAnswer = z.strictObject({ id: z.string() })
export const nudgedAnswer = z.strictObject({ nudged: z.boolean() })
export const healthAnswer = z.strictObject({
  status: z.string(),
  checks: z.record(z.string(), z.string()).optional()
})

/** The problems of a body: those before its members are checked, and those of the members. */
export const unreadable = [
  'NOT_JSON',
  'NOT_UTF8',
  'NOT_I_JSON',
  'TOO_DEEP',
  'TOO_MANY_MEMBERS',
  'TOO_LARGE',
  'UNSUPPORTED_MEDIA_TYPE',
  'INVALID'
] as const

/** The problems of any request that needs an API key. */
export const keyed = ['UNAUTHORIZED', 'FORBIDDEN', 'TOO_MANY_REQUESTS', 'UNAVAILABLE'] as const

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
