import { isIPv6 } from 'node:net'
import type { FastifyRequest } from 'fastify'
import type { ApiDeps } from './deps.ts'
import { Problem } from '../runtime/errors.ts'

/**
 * Refuses requests that a foreign page makes a browser send (CSRF). Without keys it also refuses foreign host names: their owner may
 * have pointed them to this machine, and the browser would then treat the page as ours (DNS rebinding).
 * With keys a foreign name is harmless: the browser has neither our key nor our cookie for it.
 */
export function originGuard({ auth, host, publicUrl }: Pick<ApiDeps, 'auth' | 'host' | 'publicUrl'>) {
  const known = new URL(publicUrl)
  const served = new Set(['127.0.0.1', '[::1]', 'localhost', literal(host), known.hostname])

  return (request: FastifyRequest, _reply: unknown, done: (error?: Error) => void): void => {
    done(refusal(request))
  }

  function refusal({ method, headers, originalUrl }: FastifyRequest): Problem | undefined {
    // Browsers always send a Host; old probes that speak HTTP/1.0 do not.
    const authorities = [headers.host, authorityOf(originalUrl)].filter(one => one !== undefined)
    if (!auth && !authorities.every(isServed)) return new Problem('MISDIRECTED', notServed)
    // Reads change nothing, and the browser hides their answers from pages of other origins.
    if (method === 'GET' || method === 'HEAD') return undefined
    // With keys, a foreign page can abuse only the cookie, which the browser sends by itself. Servers that send receipts
    // send none of these headers.
    if (auth && headers.cookie === undefined) return undefined
    const site = headers['sec-fetch-site']
    if (site !== undefined && site !== 'same-origin' && site !== 'none')
      return new Problem('CROSS_ORIGIN', foreign)
    const { origin } = headers
    if (origin === undefined || isOwn(origin, authorities)) return undefined
    // A proxy may have changed the Host. With a cookie, the header of the browser is enough: it sends our cookie to our names only.
    return auth && site === 'same-origin' ? undefined : new Problem('CROSS_ORIGIN', foreign)
  }

  function isServed(authority: string): boolean {
    const [, name] = /^(\[[\da-f:.]+\]|[^\s:@[\]]+)(?::\d*)?$/i.exec(authority) ?? []
    return name !== undefined && served.has(name.toLowerCase())
  }

  /** `null` is the origin of files and of frames in a sandbox. */
  function isOwn(origin: string, authorities: readonly string[]): boolean {
    if (!/^https?:\/\//.test(origin) || !URL.canParse(origin)) return false
    const url = new URL(origin)
    // A proxy may have ended TLS, which is not known here: the scheme of the page is used for both.
    return (
      url.origin === known.origin ||
      (authorities.length > 0 && authorities.every(one => hostOf(`${url.protocol}//${one}`) === url.host))
    )
  }
}

const notServed =
  'without keys only 127.0.0.1, [::1], localhost and the host of PUBLIC_URL are served: use one of them, set PUBLIC_URL to the address in use, or AUTH=on'
const foreign =
  'a browser sent this from a page of another origin. If the page is ours, let the proxy pass its Host on, or set PUBLIC_URL to its address'

/** The authority of `GET http://host/path`, which overrides the Host (RFC 9112, 3.2.2). */
function authorityOf(target: string): string | undefined {
  return target.startsWith('/') ? undefined : /^https?:\/\/([^/?#]*)/i.exec(target)?.[1]
}

const hostOf = (url: string): string | undefined => (URL.canParse(url) ? new URL(url).host : undefined)

const literal = (host: string): string => (isIPv6(host) ? `[${host}]` : host.toLowerCase())
