import { exchanges, type HttpLimits, headersOf } from './client.ts'
import type { Guard } from '../egress/guard.ts'
import { failed } from '../failure.ts'
import type { Transport } from '../types.ts'
import type { SafeUrl } from '../url.ts'

/** The result of a handler's `request` for HTTP. `content-type` is application/json unless `headers` has another one. */
export interface HttpRequest {
  url: string | URL | SafeUrl
  /** POST, PUT, PATCH, DELETE or GET; POST by default. */
  method?: string
  headers?: Record<string, string>
  /** The text of messageBody by default; empty for GET. */
  body?: string | Uint8Array
}

export interface HttpDeps {
  guard: Guard
  limits?: Partial<HttpLimits>
}

const methods = new Set(['POST', 'PUT', 'PATCH', 'DELETE', 'GET'])

export function httpTransport(deps: HttpDeps): Transport<HttpRequest> {
  const open = exchanges(deps.guard, deps.limits)

  return {
    name: 'http',

    async send(request, context, accepted) {
      if (typeof request !== 'object' || request === null)
        return failed('bad_request: the handler returned no request')
      if (context.signal.aborted) return failed('shutdown')
      if (context.timeoutMs <= 0) return failed('timeout')
      const url = deps.guard.check(String(request.url))
      if (!(url instanceof URL)) return url
      const method = request.method ?? 'POST'
      if (!methods.has(method))
        return failed('bad_request: the method must be POST, PUT, PATCH, DELETE or GET')
      const body = request.body ?? (method === 'GET' ? '' : (context.raw ?? ''))
      if (typeof body !== 'string' && !(body instanceof Uint8Array))
        return failed('bad_request: the body must be text or bytes')
      const headers = headersOf(request.headers ?? {}, context, body)
      if (typeof headers === 'string') return failed(`bad_request: ${headers}`)

      return open.send({ url, method, headers, body }, context, accepted)
    },

    close: () => open.close()
  }
}
