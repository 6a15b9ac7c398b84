import { createHmac, timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'

const toleranceS = 300

/**
 * What any receiver of Standard Webhooks does (https://www.standardwebhooks.com), written out here with nothing of ours, so
 * that it can be copied. `headers`: as Node gives them; `body`: the very bytes; `secret`: `whsec_…`.
 */
export function verify(headers: IncomingHttpHeaders, body: Buffer, secret: string, nowS: number): boolean {
  const id = headers['webhook-id']
  const timestamp = headers['webhook-timestamp']
  const signatures = headers['webhook-signature']
  if (typeof id !== 'string' || typeof timestamp !== 'string' || typeof signatures !== 'string') return false
  if (!(Math.abs(nowS - Number(timestamp)) <= toleranceS)) return false
  const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64')
  const expected = createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest()
  return signatures.split(' ').some(each => {
    const [version, base64 = ''] = each.split(',')
    const given = Buffer.from(base64, 'base64')
    return version === 'v1' && given.length === expected.length && timingSafeEqual(given, expected)
  })
}
