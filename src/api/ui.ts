import { existsSync } from 'node:fs'
import { extname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { readFiles, sendFile, type StaticFile } from './static-files.ts'
import type { App } from './typed.ts'
import { Problem } from '../runtime/errors.ts'
import { packageRoot } from '../runtime/package.ts'

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

/** The dashboard: files that `npm run build` made, from memory. Its pages are paths under /ui, all answered with one document. */
export function uiRoutes(app: App): void {
  const folder = join(packageRoot, 'dist/ui/')
  const files = existsSync(folder) ? readFiles(pathToFileURL(folder)) : new Map<string, StaticFile>()
  const send = (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
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
      'cache-control': 'no-cache'
    })
    return sendFile(request, reply, file)
  }
  const hidden = { schema: { hide: true } }
  // `/?lang=zh` keeps its query.
  const redirect = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> =>
    reply.redirect(`/ui/${/\?[^#]*/.exec(request.url)?.[0] ?? ''}`, 302)
  app.get('/', hidden, redirect)
  app.get('/ui', hidden, redirect)
  app.get('/ui/*', hidden, send)
}
