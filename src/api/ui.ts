import { hash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { extname, join } from 'node:path'
import { gzipSync } from 'node:zlib'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { App } from './typed.ts'
import { Problem } from '../runtime/errors.ts'
import { packageRoot } from '../runtime/package.ts'

interface File {
  bytes: Buffer
  gzipped: Buffer
  type: string
  etag: string
}

const types: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml'
}

/** No inline script and no inline style: foreign text that gets into the page through a bug of ours has no effect. */
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'"
].join('; ')

/** Weight 0 refuses it (RFC 9110, 12.5.3). */
const acceptsGzip = /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))/

/** The dashboard: files that `npm run build` made, from memory. Its pages are paths under /ui, all answered with one document. */
export function uiRoutes(app: App): void {
  const folder = join(packageRoot, 'dist/ui')
  const files = existsSync(folder) ? readFiles(folder) : new Map<string, File>()
  const send = (request: FastifyRequest, reply: FastifyReply): FastifyReply => {
    const path = (request.params as { '*'?: string })['*'] ?? ''
    const file = files.get(path) ?? (extname(path) === '' ? files.get('index.html') : undefined)
    if (!file)
      throw new Problem('NOT_FOUND', files.size === 0 ? 'the dashboard is not built: npm run build' : '')
    void reply.headers({
      'content-security-policy': policy,
      'referrer-policy': 'no-referrer',
      'x-frame-options': 'DENY',
      'cross-origin-opener-policy': 'same-origin',
      'cross-origin-resource-policy': 'same-origin',
      'permissions-policy': 'camera=(), geolocation=(), microphone=()',
      'cache-control': 'no-cache',
      vary: 'accept-encoding',
      etag: file.etag
    })
    if (request.headers['if-none-match']?.includes(file.etag)) return reply.code(304).send()
    void reply.type(file.type)
    return acceptsGzip.test(request.headers['accept-encoding'] ?? '')
      ? reply.header('content-encoding', 'gzip').send(file.gzipped)
      : reply.send(file.bytes)
  }
  const hidden = { schema: { hide: true } }
  // `/?lang=zh` keeps its query.
  const redirect = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> =>
    reply.redirect(`/ui/${/\?[^#]*/.exec(request.url)?.[0] ?? ''}`, 302)
  app.get('/', hidden, redirect)
  app.get('/ui', hidden, redirect)
  app.get('/ui/*', hidden, send)
}

function readFiles(folder: string): Map<string, File> {
  return new Map(
    readdirSync(folder)
      .filter(name => extname(name) in types)
      .map((name): [string, File] => {
        const bytes = readFileSync(join(folder, name))
        const etag = `"${hash('sha256', bytes, 'base64url').slice(0, 22)}"`
        return [name, { bytes, gzipped: gzipSync(bytes), type: types[extname(name)] ?? '', etag }]
      })
  )
}
