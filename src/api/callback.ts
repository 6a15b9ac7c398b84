import { isIP } from 'node:net'
import type { FastifyRequest } from 'fastify'
import { z, type ZodType } from 'zod'
import { tokenHeader } from '../domain/tokens.ts'
import type { ApiDeps } from './deps.ts'
import { receiptAnswer, refusals } from './responses.ts'
import { receiptExamples } from './examples.ts'
import { sendProblem } from './problem.ts'
import { takeReceipt } from './receipt.ts'
import { receiptBody } from './requests.ts'
import type { App } from './typed.ts'

export function callbackRoutes(app: App, deps: ApiDeps): void {
  app.post(
    '/callback',
    {
      bodyLimit: 80 * 1024,
      schema: {
        tags: ['callback'],
        summary: 'Send a receipt for a delivery',
        operationId: 'receive',
        description:
          'The header ackbox-callback-token returns the token that came with the delivery. With Accept: text/plain, the answer is `success` or `fail`.',
        security: [{ callbackToken: [] }],
        body: receiptBody.meta({ 'x-examples': receiptExamples }),
        response: withWords(
          receiptAnswer,
          refusals(
            'NOT_JSON',
            'NOT_UTF8',
            'OVERLOADED',
            'NOT_I_JSON',
            'TOO_DEEP',
            'TOO_MANY_MEMBERS',
            'BAD_TOKEN',
            'CROSS_ORIGIN',
            'TASK_NOT_FOUND',
            'TASK_DELETED',
            'TOO_LARGE',
            'DATA_TOO_LARGE',
            'UNSUPPORTED_MEDIA_TYPE',
            'INVALID',
            'WRONG_CODE',
            'WRONG_DOWNSTREAM',
            'UNAVAILABLE'
          )
        )
      },
      errorHandler: (error, request, reply) => {
        sendProblem(reply, error, deps.log, wantsText(request.headers.accept))
      }
    },
    async (request, reply) => {
      const token = request.headers[tokenHeader]
      const taken = await takeReceipt(
        deps,
        request.body,
        typeof token === 'string' ? token : undefined,
        addressOf(request)
      )
      if (wantsText(request.headers.accept)) return reply.type('text/plain; charset=utf-8').send('success')
      const { kind: _, ...answer } = taken
      return answer
    }
  )
}

/** A proxy may pass on any text that the caller wrote: only an address is stored. */
function addressOf({ ip, socket }: FastifyRequest): string {
  return isIP(ip) === 0 ? (socket.remoteAddress ?? '') : ip
}

/** Describes each answer also as the single word of the classic protocol. */
function withWords(accepted: ZodType, refused: ReturnType<typeof refusals>) {
  const word = (text: string) => ({ 'text/plain': { schema: z.literal(text) } })
  return {
    200: {
      description: 'Accepted',
      content: { 'application/json': { schema: accepted }, ...word('success') }
    },
    ...Object.fromEntries(
      Object.entries(refused).map(([status, { description, content }]) => [
        status,
        { description, content: { ...content, ...word('fail') } }
      ])
    )
  }
}

/** Only if text is requested by name and JSON is not preferred; `*\/*` gets JSON. */
export function wantsText(accept: string | undefined): boolean {
  if (accept === undefined || !/text\/plain/i.test(accept)) return false
  const weights = new Map(
    accept.split(',').map(range => {
      const [type = '', ...parameters] = range.split(';').map(part => part.trim().toLowerCase())
      const q = parameters.find(parameter => parameter.startsWith('q='))
      return [type, q === undefined ? 1 : Number(q.slice(2))]
    })
  )
  const text = weights.get('text/plain') ?? 0
  return text > 0 && text >= (weights.get('application/json') ?? 0)
}
