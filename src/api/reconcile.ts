import { z } from 'zod'
import { isTimeout } from '../db/batch.ts'
import type { Question } from '../db/reconcile.ts'
import { Problem } from '../runtime/errors.ts'
import { seesDownstream } from './access.ts'
import { callerOf, quotaKeyOf, requireCode, type Caller } from './auth.ts'
import { fit, readBody } from './body.ts'
import type { ApiDeps } from './deps.ts'
import { reconcileExamples } from './examples.ts'
import { instant, isUuid, reconcileBody } from './requests.ts'
import { differencesAnswer, digestsAnswer, keyed, refusals, unreadable } from './responses.ts'
import type { App } from './typed.ts'
import { defined } from '../domain/optional-members.ts'
import { sharedRoom } from '../runtime/shared-room.ts'

const longestMs = 31 * 86_400_000
/** Comparisons at a time; two for one key if it is alone. Each may hold one of the four connections for reads for seconds. */
const mostAtATime = 3

export function reconcileRoutes(app: App, deps: ApiDeps): void {
  const room = sharedRoom(mostAtATime)
  app.post(
    '/reconcile',
    {
      // 10,000 taskNos of 128 characters.
      bodyLimit: 1_536 * 1_024,
      schema: {
        tags: ['reconcile'],
        summary: 'Compare the tasks that a downstream has handled with those HANDLED here',
        operationId: 'reconcile',
        description:
          'With taskNos: the differences, page by page. With a digest: the buckets that differ; repeat with longer buckets until their taskNos fit. Nothing changes. See docs/reconcile.md for a million tasks.',
        body: reconcileBody.meta({ 'x-examples': reconcileExamples }),
        response: {
          200: z.union([differencesAnswer, digestsAnswer]),
          ...refusals(
            ...unreadable,
            'CODE_FORBIDDEN',
            'DOWNSTREAM_NOT_FOUND',
            'CROSS_ORIGIN',
            'OVERLOADED',
            ...keyed
          )
        }
      }
    },
    async request => {
      const caller = callerOf(request)
      const question = questionOf(readBody(request.body, 'reconcile').value, caller)
      if (!seesDownstream(question.downstream, caller, deps.handlers))
        throw new Problem('DOWNSTREAM_NOT_FOUND')
      const leave = room.take(quotaKeyOf(deps, request))
      if (!leave)
        throw new Problem('TOO_MANY_REQUESTS', 'too many comparisons are running', {
          headers: { 'retry-after': '1' }
        })
      const answer = await deps.reconcile(question).catch(refuseSlow).finally(leave)
      if (answer === 'not_found') throw new Problem('DOWNSTREAM_NOT_FOUND')
      if (answer === 'too_many') throw invalid('/from', 'more than 1,000,000 tasks: choose a shorter time')
      return answer
    }
  )
}

/** The next try would take as long, and occupy a connection as long. */
function refuseSlow(err: unknown): never {
  throw isTimeout(err) ? invalid('/from', 'the comparison takes too long: choose a shorter time') : err
}

const invalid = (pointer: string, detail: string): Problem => new Problem('INVALID', detail, { pointer })

function questionOf(body: unknown, caller: Caller): Question {
  const {
    downstream,
    messageCode,
    bucket,
    taskNos,
    digest,
    cursor,
    limit = 200,
    ...times
  } = fit(reconcileBody, body)
  const from = instant(times.from) ?? new Date(Number.NaN)
  const to = instant(times.to) ?? new Date(Number.NaN)
  requireCode(caller, messageCode, '/messageCode')
  if (to <= from) throw invalid('/to', 'must be after from')
  if (to.getTime() - from.getTime() > longestMs) throw invalid('/to', 'must be at most 31 days after from')
  if ((taskNos === undefined) === (digest === undefined))
    throw invalid('/taskNos', 'set either taskNos or digest')
  if (digest && bucket !== undefined) throw invalid('/bucket', 'a digest names its own buckets')
  if (digest && cursor !== undefined) throw invalid('/cursor', 'a digest has one page')
  if (cursor !== undefined && !isCursor(cursor))
    throw invalid('/cursor', 'must be the nextCursor of the previous page')
  return {
    downstream,
    messageCodes: messageCode === undefined ? caller.messageCodes : [messageCode],
    from,
    to,
    limit,
    ...defined({ bucket, taskNos, digest, cursor })
  }
}

const isCursor = (text: string): boolean =>
  text.startsWith('m:') ? isUuid(text.slice(2)) : /^t:[A-Za-z0-9._:-]{0,128}$/.test(text)
