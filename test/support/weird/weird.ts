import { defineHandler, env, url, z } from 'ackbox/handler'
import { weirdNames, weirdValues, type WeirdName } from '../weird-values.ts'

/** `way`: whether the hook throws the value, rejects with it, or returns it; or where in the request it stands. */
const body = z.object({
  hook: z.string(),
  way: z.enum(['throw', 'reject', 'return', 'url', 'body', 'headers', 'header']),
  value: z.enum(weirdNames as [WeirdName, ...WeirdName[]])
})
type Body = z.infer<typeof body>

function weird(hook: string, { hook: wanted, way, value }: Body, otherwise: unknown): never {
  if (hook !== wanted) return otherwise as never
  const made = weirdValues[value]()
  if (way === 'throw') throw made
  // oxlint-disable-next-line typescript/prefer-promise-reject-errors -- that is the point
  return (way === 'reject' ? Promise.reject(made) : made) as never
}

const policy = {
  retry: { times: 2, backoff: '100ms' },
  limit: { concurrency: 50, timeout: '5s' }
} as const

export default defineHandler({
  messageCode: 'test.weird',
  body: body.superRefine((read, context) => {
    if (read.hook !== 'schema') return
    if (read.way === 'throw' || read.way === 'reject') weird('schema', read, undefined)
    context.addIssue({ code: 'custom', message: weirdValues[read.value]() as string, path: [Symbol('odd')] })
  }),
  downstreams: {
    answering: {
      transport: 'http',
      when: ({ body }) => body.hook !== 'send' && weird('when', body, true),
      beforeSend: ({ body }) => weird('beforeSend', body, undefined),
      afterSend: ({ body }) => weird('afterSend', body, undefined),
      request({ body, raw }) {
        const request = { url: url`${env.TEST_SINK}/answering`, body: raw }
        if (body.hook !== 'request' || ['throw', 'reject', 'return'].includes(body.way))
          return weird('request', body, request)
        const made = weirdValues[body.value]() as never
        return {
          ...request,
          ...(body.way === 'header' ? { headers: { 'x-odd': made } } : { [body.way]: made })
        }
      },
      // The first attempt looks like one that may have arrived, and the second probes.
      accepted({ text }, { body }) {
        if (body.hook.startsWith('probe')) throw new Error(`timeout ${text.length}`)
        return weird('accepted', body, true)
      },
      probe: {
        request: ({ body }) => weird('probe.request', body, { url: url`${env.TEST_SINK}/probe` }),
        handled: (_, { body }) => weird('probe.handled', body, false),
        required: true
      },
      ...policy
    },
    own: {
      transport: 'custom',
      when: ({ body }) => body.hook === 'send',
      send: ({ body }) => weird('send', body, { kind: 'delivered' }),
      ...policy
    }
  },
  checkBack: () => ({ url: url`${env.TEST_SINK}/check` })
})
