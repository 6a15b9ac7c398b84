import { z } from 'zod'
import { scopes } from '../db/api-keys.ts'
import { alarmKinds } from '../domain/types.ts'
import { downstream, messageCode, taskNo } from './requests.ts'
import { count, fingerprint, flag, isSpan, time, upsideDown } from './queries.ts'

// What the dashboard's routes take, for checks and for the OpenAPI.

export const statsQuery = z
  .strictObject({
    from: time.optional().describe('Default: an hour before `to`.'),
    to: time.optional().describe('Default: now.'),
    step: count(60, 86_400)
      .optional()
      .describe('Seconds per point, in whole minutes. Raised if there would be more than 750 points.'),
    by: z.enum(['downstream']).optional().describe('A series for each downstream.'),
    messageCode: messageCode.optional(),
    downstream: downstream.optional()
  })
  .refine(isSpan, upsideDown)

export const failureQuery = z
  .strictObject({
    from: time.optional().describe('FAILED at or after. Default: the last 24 hours.'),
    to: time.optional().describe('FAILED before.'),
    messageCode: messageCode.optional(),
    downstream: downstream.optional(),
    fingerprint: fingerprint.optional(),
    archived: flag.optional().describe('true: only archived groups. Default: only the others.'),
    limit: count(1, 200).optional().describe('Maximum number of groups. Default: 50.')
  })
  .refine(isSpan, upsideDown)
export const fingerprintParams = z.strictObject({
  fingerprint: z.string().meta({ example: '0123456789abcdef' })
})
// PostgreSQL's text cannot hold U+0000.
export const noteBody = z.strictObject({
  note: z.string().regex(/^[^\0]{1,1000}$/u, 'must have 1 to 1,000 characters')
})

export const eventsQuery = z.strictObject({
  taskNo: taskNo.optional().describe('Also report changes of this task.')
})

export const alarmBody = z.strictObject({
  taskNo,
  downstream: z.string().max(200),
  attempt: z.int().min(0).max(2_147_483_647),
  kind: z.enum(alarmKinds)
})

export const apiKeyBody = z.strictObject({
  name: z.string().regex(/^[\w.@-]{1,64}$/, 'must have 1 to 64 of A-Z a-z 0-9 . _ - @'),
  scopes: z.array(z.enum(scopes)).min(1).max(scopes.length),
  messageCodes: z
    .array(messageCode)
    .min(1)
    .max(100)
    .optional()
    .describe('Default: all that your key may use.')
})
export const apiKeyParams = z.strictObject({ id: z.string().meta({ example: 'key_0123456789ab' }) })
