import type { ApiDeps } from './deps.ts'
import { receiptAnswer, refusals } from './answers.ts'
import { receiptExamples } from './examples.ts'
import { sendProblem } from './problem.ts'
import { fit, readBody } from './read.ts'
import { maxDataBytes, receiptBody } from './schemas.ts'
import type { App } from './typed.ts'
import { json } from './view.ts'
import { Problem } from '../errors.ts'

export function callbackRoutes(app: App, deps: ApiDeps): void {
  app.post(
    '/callback',
    {
      bodyLimit: 80 * 1024,
      schema: {
        tags: ['callback'],
        summary: 'A receipt: what a downstream says of a delivery',
        operationId: 'receive',
        description:
          'The header ackbox-callback-token brings back the token that came with the delivery. With Accept: text/plain the answer is `success` or `fail`.',
        security: [{ callbackToken: [] }],
        body: receiptBody.meta({ 'x-examples': receiptExamples }),
        response: {
          200: receiptAnswer,
          ...refusals(
            'NOT_JSON',
            'NOT_UTF8',
            'NOT_I_JSON',
            'TOO_DEEP',
            'TOO_MANY_MEMBERS',
            'BAD_TOKEN',
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
        }
      },
      errorHandler: (error, request, reply) => {
        sendProblem(reply, error, deps.log, wantsText(request.headers.accept))
      }
    },
    async (request, reply) => {
      const read = readBody(request.body, 'receipt')
      const { taskNo, messageCode, downstream, result = 'HANDLED', reason } = fit(receiptBody, read.value)
      const data = read.bodyText()
      if (read.bodyBytes() > maxDataBytes) {
        throw new Problem('DATA_TOO_LARGE', `${read.bodyBytes()} bytes of at most ${maxDataBytes}`, {
          pointer: '/data'
        })
      }
      const token = request.headers['ackbox-callback-token']
      const received = await deps.receive({
        taskNo,
        messageCode,
        result,
        ...(downstream === undefined ? {} : { downstream }),
        ...(reason === undefined ? {} : { reason }),
        ...(data === undefined ? {} : { data }),
        token: typeof token === 'string' ? token : undefined,
        remote: request.ip
      })
      switch (received) {
        case 'unauthorized':
          throw new Problem('BAD_TOKEN')
        case 'gone':
          throw new Problem('TASK_NOT_FOUND')
        case 'deleted':
          throw new Problem('TASK_DELETED')
        case 'wrong_code':
          throw new Problem('WRONG_CODE', '', { pointer: '/messageCode' })
        case 'wrong_downstream':
          throw new Problem('WRONG_DOWNSTREAM', '', { pointer: '/downstream' })
      }
      if (wantsText(request.headers.accept)) return reply.type('text/plain; charset=utf-8').send('success')
      const { kind: _, ...answer } = received
      return json(reply, JSON.stringify(answer))
    }
  )
}

/** Only when text is asked for by name and JSON is not liked better; `*\/*` gets JSON. */
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
