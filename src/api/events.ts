import { z } from 'zod'
import { callerOf, quotaKeyOf } from './auth.ts'
import type { ApiDeps } from './deps.ts'
import { taskNo } from './requests.ts'
import { keyed, refusals } from './responses.ts'
import type { App } from './typed.ts'
import { Problem } from '../runtime/errors.ts'
import { defined } from '../domain/optional-members.ts'

const eventsQuery = z.strictObject({
  taskNo: taskNo.optional().describe('Also report changes of this task.')
})

/** A stream ends after this time, so that a key that was revoked meanwhile is refused when the page reconnects. */
const streamMs = 300_000
const beatMs = 15_000
const streamType = 'text/event-stream; charset=utf-8'
/** A page that reads nothing is cut off. */
const mostUnread = 65_536

export function eventRoutes(app: App, deps: ApiDeps): void {
  const ends = new Set<() => void>()
  app.addHook('preClose', done => {
    for (const end of ends) end()
    done()
  })

  app.get(
    '/events',
    {
      schema: {
        tags: ['dashboard'],
        summary: 'Changes as they happen (server-sent events)',
        operationId: 'listenEvents',
        description:
          'Each event `changed` is a list of `{kind: failure, messageCode, downstream}`, `{kind: task, taskNo}`, `{kind: audit}`: read again what you show. The stream ends after five minutes: reconnect and read again.',
        querystring: eventsQuery,
        response: {
          200: {
            description: 'OK',
            content: { 'text/event-stream': { schema: z.string().describe('Server-sent events.') } }
          },
          ...refusals('INVALID', ...keyed, 'TOO_MANY_WAITERS')
        }
      }
    },
    (request, reply) => {
      // Node keeps the headers of an answer to HEAD until its end: it would hang for as long as a stream lasts.
      if (request.method === 'HEAD') return reply.type(streamType).send()
      const { taskNo } = request.query
      const { raw } = reply
      const stop = deps.watchChanges({
        quotaKey: quotaKeyOf(deps, request),
        messageCodes: callerOf(request).messageCodes,
        ...defined({ taskNo }),
        tell: changes => write(`event: changed\ndata: ${JSON.stringify(changes)}\n\n`)
      })
      if (stop === 'busy') throw new Problem('TOO_MANY_WAITERS', '', { headers: { 'retry-after': '5' } })
      const beat = setInterval(() => write(': beat\n\n'), beatMs)
      const limit = setTimeout(end, streamMs)
      ends.add(end)
      raw.once('close', end)
      reply.hijack()
      raw.writeHead(200, {
        'content-type': streamType,
        'cache-control': 'no-store',
        'x-content-type-options': 'nosniff',
        // Otherwise nginx buffers the events.
        'x-accel-buffering': 'no'
      })
      write('retry: 2000\n\n')

      function write(text: string): void {
        if (raw.writableLength > mostUnread) raw.destroy()
        else raw.write(text)
      }
      function end(): void {
        if (stop !== 'busy') stop()
        clearInterval(beat)
        clearTimeout(limit)
        ends.delete(end)
        raw.end()
      }
    }
  )
}
