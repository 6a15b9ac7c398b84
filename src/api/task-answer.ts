import { z } from 'zod'
import {
  checkAnswers,
  handledBys,
  phases,
  reasons,
  receiptResults,
  statusNumber,
  taskStatuses,
  waitingCodes,
  type Status
} from '../domain/types.ts'

// How the API shows a task: its deliveries, their attempts and receipts. For the OpenAPI and the tests, like responses.ts.

export const status = z.enum(Object.keys(statusNumber) as [Status, ...Status[]])
export const time = z.string().meta({ format: 'date-time' })
/** Every whole number of an answer is a count. */
export const natural = z.int().min(0)

const sent = {
  handlerVersion: z
    .string()
    .describe('Version of the handler that made it: changes with its file, its helpers and its settings.'),
  transport: z.string().optional(),
  method: z.string().optional().describe('Only HTTP.'),
  target: z
    .string()
    .optional()
    .describe(
      'The URL, or the exchange, topic, subject, stream or service. Credentials are shown as `[masked]`.'
    ),
  bytes: natural.optional().describe('Size of the body that the signature covers.'),
  sha256: z.string().optional().describe('SHA-256 of these bytes, in hex.')
}

const sentRequest = z
  .looseObject({
    ...sent,
    headerNames: z
      .array(z.string())
      .optional()
      .describe('Names of the headers, attachments, properties or fields.'),
    computed: z
      .literal(true)
      .optional()
      .describe('It was not stored: the same version of the handler made it again, from the stored task.'),
    unknown: z
      .enum(['handler_changed', 'no_handler', 'request_failed'])
      .optional()
      .describe('Why it was not made again.')
  })
  .meta({ id: 'SentRequest' })

export const requestNowAnswer = z
  .looseObject({
    taskNo: z.string(),
    downstream: z.string(),
    attempt: natural.describe('The number that the attempt would have.'),
    ...sent,
    headers: z
      .array(z.array(z.string()).length(2))
      .describe('Names and values of the headers, attachments, properties or fields.'),
    body: z.string().optional().describe('At most 16,384 characters. Only if it is UTF-8.'),
    truncated: z.literal(true).optional().describe('The body is longer.'),
    error: z.string().optional().describe('Why the attempt would fail before anything is sent.')
  })
  .meta({ id: 'RequestNow' })

const attempt = z
  .looseObject({
    attempt: natural,
    outcome: z.string().describe('delivered, probed, refused or failed.'),
    reason: z
      .string()
      .optional()
      .describe('Of a delivered one: `no_receipt`, if no receipt came for it in time.'),
    status: natural.optional(),
    answer: z.string().optional(),
    address: z.string().optional(),
    warning: z.string().optional(),
    messageId: z.string().optional().describe('The id that the broker gave the message.'),
    request: sentRequest
      .optional()
      .describe(
        'What was sent, whether or not it arrived. Only when one task is read, by a key with tasks:read.'
      ),
    ms: z.number(),
    node: z.string(),
    startedAt: time
  })
  .meta({ id: 'Attempt' })

const receipt = z
  .looseObject({
    attempt: natural,
    result: z.enum(receiptResults),
    reason: z.string().optional(),
    data: z.unknown().optional(),
    applied: z.boolean(),
    late: z.boolean(),
    createdAt: time
  })
  .meta({ id: 'Receipt' })

const waitingAnswer = z
  .looseObject({
    code: z.enum(waitingCodes),
    text: z
      .strictObject({ en: z.string(), zh: z.string() })
      .describe('The same as a sentence, with times in UTC.')
  })
  .meta({ id: 'WaitingFor' })

export const deliveryAnswer = z
  .looseObject({
    downstream: z.string(),
    status,
    phase: z.enum(phases).optional(),
    reason: z.enum(reasons).optional(),
    attempt: natural.describe('Number of the last attempt. It only increases.'),
    triesLeft: natural,
    position: natural
      .optional()
      .describe(
        'Position among the deliveries of its downstream and orderingKey, as sent in ackbox-sequence.'
      ),
    outOfOrder: z.literal(true).optional().describe('It lost its place and runs in parallel to the others.'),
    nextActionAt: time.optional(),
    deliveredAt: time.optional(),
    handledAt: time.optional(),
    handledBy: z.enum(handledBys).optional(),
    updatedAt: time.optional(),
    updatedBy: z
      .string()
      .optional()
      .describe('The key that changed it last: redeliver, delete, push or settle.'),
    lastAttemptAt: time.optional().describe('Only in lists.'),
    lastReason: z
      .string()
      .optional()
      .describe('In lists: the result of the last attempt, or else of the last receipt.'),
    lastStatus: natural.optional().describe('In lists: the status that the last attempt was answered with.'),
    ahead: z
      .string()
      .optional()
      .describe('The task directly before it in its orderingKey. Only where one task is read.'),
    attempts: z.array(attempt).optional().describe('The newest 100, oldest first.'),
    receipts: z.array(receipt).optional().describe('The newest 100, oldest first.'),
    attemptsTotal: natural
      .optional()
      .describe('The number of all attempts. Only if there are more than 100.'),
    receiptsTotal: natural
      .optional()
      .describe('The number of all receipts. Only if there are more than 100.'),
    waitingFor: waitingAnswer.optional().describe('Why it has not ended. Only when one task is read.')
  })
  .meta({ id: 'Delivery' })

const prepared = z
  .looseObject({
    preparedAt: time,
    checks: natural.describe('How often its producer was asked.'),
    nextCheckAt: time.optional(),
    lastAnswer: z.enum(checkAnswers).optional().describe('NONE: the answer was not understood.'),
    lastReason: z.string().optional().describe('Why there is no answer.'),
    lastCheckedAt: time.optional(),
    endedAt: time.optional(),
    endedBy: z.string().optional().describe('Name of a key, or `check:` and the number of the check.')
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
    retryTimes: natural.optional(),
    orderingKey: z.string().optional(),
    extend: z.unknown().optional(),
    createdBy: z.string().optional(),
    bizType: z.string().optional(),
    bizKey: z.string().optional(),
    uniqueBiz: z.boolean().optional(),
    after: z
      .array(z.string())
      .optional()
      .describe('The tasks that it waits or waited for. Only when one task is read or posted.'),
    before: z
      .array(z.string())
      .optional()
      .describe('Tasks that wait for this one, at most 100. Only when one task is read.'),
    messageBody: z.unknown().optional().meta({
      description: 'Exactly the posted text. Only when one task is read, by a key with tasks:read.'
    }),
    prepared: prepared
      .optional()
      .describe('Only for tasks posted as prepared. The answer to a commit omits it.'),
    deliveries: z.array(deliveryAnswer)
  })
  .meta({ id: 'Task' })
