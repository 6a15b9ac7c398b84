import { hash, timingSafeEqual } from 'node:crypto'
import type { FastifyRequest } from 'fastify'

/** Sent with each write of a page that is signed in: another site can make a browser send the cookie, but cannot read this. */
export const csrfHeader = 'ackbox-csrf'

const form = /^ses_[\w-]{43}$/

/** Under https no other host and no http page can set a cookie of the name with the prefix (RFC 6265bis, 4.1.3.2). */
export const cookieName = (isSecure: boolean): string => (isSecure ? '__Host-ackbox' : 'ackbox')

export const isSecure = (request: FastifyRequest, publicUrl: string): boolean =>
  request.protocol === 'https' || publicUrl.startsWith('https:')

/** The id of the session that the cookie names; null: none. */
export function sessionOf(request: FastifyRequest, publicUrl: string): string | null {
  const { cookie } = request.headers
  if (cookie === undefined) return null
  const name = cookieName(isSecure(request, publicUrl))
  for (const part of cookie.split(';')) {
    const [key, value = ''] = part.trim().split('=')
    if (key === name) return form.test(value) ? value : null
  }
  return null
}

export const csrfOf = (session: string): string => hash('sha256', `csrf ${session}`, 'base64url')

/** Whether a write that came with the cookie was sent by our own page. */
export function isOwnWrite({ method, headers }: FastifyRequest, session: string): boolean {
  if (method === 'GET' || method === 'HEAD') return true
  const said = Buffer.from(String(headers[csrfHeader] ?? ''))
  const due = Buffer.from(csrfOf(session))
  return said.length === due.length && timingSafeEqual(said, due)
}
