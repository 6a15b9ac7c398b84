import type { FastifyReply, FastifyRequest, RouteOptions } from 'fastify'
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import { z } from 'zod'
import { Problem } from '../runtime/errors.ts'
import { refusals } from './responses.ts'

/** Checks that Node does not do, before a body is read. They run for every request: keep them cheap. */
export function checkRequest(
  request: FastifyRequest,
  reply: FastifyReply,
  done: (error?: Error) => void
): void {
  // Otherwise a browser might treat a task's body or a downstream's answer as a script or a page.
  reply.header('x-content-type-options', 'nosniff')
  done(problemWith(request))
}

function problemWith({ raw }: FastifyRequest): Problem | undefined {
  const { rawHeaders, headers } = raw
  if (rawHeaders.length > 2 * 256) return new Problem('HEADERS_TOO_LARGE', 'more than 256 headers')
  if ((raw.url?.length ?? 0) > 8_192) return new Problem('URI_TOO_LONG')
  let hosts = 0
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]
    if (name?.length === 4 && name.toLowerCase() === 'host') hosts++
  }
  // Two Hosts: a proxy in front may have used the other one.
  if (hosts > 1 || (hosts === 0 && raw.httpVersion === '1.1'))
    return new Problem('BAD_REQUEST', 'exactly one Host is needed')
  if (!hasContent(headers)) {
    // Otherwise Fastify would refuse the type of nothing: `curl -d ''` says that it is a form.
    delete headers['content-type']
    return undefined
  }
  const encoding = headers['content-encoding']
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
    return new Problem('UNSUPPORTED_MEDIA_TYPE', 'Content-Encoding is not supported')
  }
  const type = headers['content-type']
  if (
    type !== undefined &&
    type !== 'application/json' &&
    /;\s*charset\s*=/i.test(type) &&
    !/;\s*charset\s*=\s*"?utf-8"?\s*(?:;|$)/i.test(type)
  ) {
    return new Problem('UNSUPPORTED_MEDIA_TYPE', 'the charset must be utf-8')
  }
  return undefined
}

/** False: there is no content, so its type and its coding say nothing. Chunks may turn out to be empty, see `takeNoContent`. */
const hasContent = (headers: IncomingHttpHeaders): boolean =>
  headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) !== 0

/** Reads a body of no type, or of one that no call takes. Some proxies make empty chunks of a request without content. */
export function takeNoContent(
  _request: FastifyRequest,
  payload: IncomingMessage,
  done: (error: Error | null) => void
): void {
  payload.once('data', refuse).once('error', end).once('end', end)

  function refuse(): void {
    end(new Problem('UNSUPPORTED_MEDIA_TYPE'))
  }

  function end(error?: Error): void {
    payload.off('data', refuse).off('end', end)
    done(error ?? null)
  }
}

/** The absolute form, `GET http://host/tasks`, means the same as the origin form (RFC 9112, 3.2.2). */
export function originForm(target: string): string {
  if (target.charCodeAt(0) === 47) return target
  const [, path] = /^https?:\/\/[^/?#]*([^#]*)/i.exec(target) ?? []
  if (path === undefined) return target
  return path.startsWith('/') ? path : `/${path}`
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The body is ignored, as the description of the route states. */
    ignoresBody?: true
  }
}

/** A route without a described body refuses a body: its content would be ignored silently. `{}` counts as no body. */
export function refuseBody(route: RouteOptions): void {
  const { schema } = route
  if (!schema || schema.body || ('hide' in schema && schema.hide) || route.config?.ignoresBody) return
  if ([route.method].flat().every(method => method === 'GET' || method === 'HEAD')) return
  schema.response = { ...refusals('INVALID'), ...(schema.response as object | undefined) }
  route.preHandler = ({ body }, _reply, done) => {
    done(
      body instanceof Uint8Array && !isEmpty(body)
        ? new Problem('INVALID', 'this call takes no body', { pointer: '' })
        : undefined
    )
  }
}

// Trimmed first: an expression for the spaces too would take time that grows with their square.
function isEmpty(body: Uint8Array): boolean {
  const text = Buffer.from(body).toString().trim()
  return text === '' || /^\{\s*\}$/.test(text)
}

const noQuery = z.strictObject({})
/** Probes and scrapers may add any query, and a query that a proxy adds must not lose a receipt. */
const anyQuery = new Set(['/healthz', '/readyz', '/metrics', '/callback'])

/** A route without a described query refuses a query: `DELETE /tasks/x?downstream=a` must not stop all deliveries. */
export function refuseQuery(route: RouteOptions): void {
  const { schema } = route
  if (!schema || schema.querystring || ('hide' in schema && schema.hide) || anyQuery.has(route.url)) return
  schema.response = { ...refusals('INVALID'), ...(schema.response as object | undefined) }
  schema.querystring = noQuery
}
