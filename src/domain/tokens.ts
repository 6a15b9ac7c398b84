import { createHmac, createSecretKey, hkdfSync, timingSafeEqual, type KeyObject } from 'node:crypto'

/** The header of the token, in the request and in the receipt. */
export const tokenHeader = 'ackbox-callback-token'

/** The delivery and the attempt that a token was made for. */
export interface TokenClaims {
  downstream: string
  attempt: number
  /** In ms since 1970, as passed to issue(). It identifies the token of a removed task: see db/receipts.ts. */
  issuedMs: number
}

export interface Tokens {
  issue(made: { taskNo: string; downstream: string; attempt: number; at: Date }): string
  /** Null for any invalid token, without a reason: a guess learns nothing. It needs no database. */
  check(token: unknown, taskNo: string, now: Date): TokenClaims | null
}

const VALID_MS = 90 * 24 * 3_600_000
const LONGEST = 200

// version . key id . issued at, in s since 1970, base 36 . downstream . attempt . HMAC-SHA256 in base64url
const shape =
  /^v1\.([A-Za-z0-9_-]{8})\.([0-9a-z]{1,9})\.([a-z][a-z0-9-]{0,31})\.([1-9][0-9]{0,9})\.[A-Za-z0-9_-]{43}$/

/**
 * The callback tokens. `previous` is the other key of a rotation: its tokens are valid too.
 * A token has one form only. The HMAC is over its own characters and is compared in base64url. Other texts that
 * decode to the same (padding, leading zeros, a line feed) are refused.
 */
export function tokens(secrets: { current: string; previous?: string | undefined }): Tokens {
  const current = key(secrets.current)
  const keys = new Map([[current.id, current]])
  if (secrets.previous !== undefined) {
    const previous = key(secrets.previous)
    keys.set(previous.id, previous)
  }
  return {
    issue({ taskNo, downstream, attempt, at }) {
      const issued = Math.floor(at.getTime() / 1_000).toString(36)
      const head = `v1.${current.id}.${issued}.${downstream}.${attempt}`
      return `${head}.${mac(current.secret, head, taskNo)}`
    },
    check(token, taskNo, now) {
      if (typeof token !== 'string' || token.length > LONGEST) return null
      const [, id = '', issued = '', downstream = '', attempt = ''] = shape.exec(token) ?? []
      const used = keys.get(id)
      if (used === undefined) return null
      const cut = token.lastIndexOf('.')
      const right = Buffer.from(mac(used.secret, token.slice(0, cut), taskNo))
      if (!timingSafeEqual(right, Buffer.from(token.slice(cut + 1)))) return null
      // A time in the future is fine: the token is ours, and the clocks of two hosts differ.
      const issuedMs = Number.parseInt(issued, 36) * 1_000
      if (now.getTime() - issuedMs > VALID_MS) return null
      return { downstream, attempt: Number(attempt), issuedMs }
    }
  }
}

/** The taskNo comes last: the part before it has a fixed number of dots, so no two inputs give the same text. */
function mac(secret: KeyObject, head: string, taskNo: string): string {
  return createHmac('sha256', secret).update(`${head}.${taskNo}`).digest('base64url')
}

/** The secret prepared as `src/transport/sign.ts` does, for the same reason. */
function key(secret: string): { id: string; secret: KeyObject } {
  return {
    id: derive(secret, 'ackbox callback token v1 key id', 6).toString('base64url'),
    secret: createSecretKey(derive(secret, 'ackbox callback token v1', 32))
  }
}

/** The name in the place of a downstream for which the secret of alarm webhooks is derived. */
export const alarmWebhook = 'ackbox-alarm'

/** The signing secret of this downstream, in the form of Standard Webhooks. */
export function signingSecret(secret: string, downstream: string): string {
  return `whsec_${derive(secret, `ackbox signing v1 ${downstream}`, 32).toString('base64')}`
}

/**
 * Base64 with or without padding. Node decodes any text without an error, where other languages refuse it: both sides would use different
 * keys, or one of them none.
 */
export const isBase64 = (text: string): boolean =>
  /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?$/.test(text)

/** The length of the key in a signing secret, `whsec_` and base64. 0: it is none. */
export function secretBytes(secret: string): number {
  const [, base64 = ''] = /^whsec_(.+)$/.exec(secret) ?? []
  return isBase64(base64) ? Buffer.from(base64, 'base64').length : 0
}

/** One master secret, and a separate key for each use: no key reveals another. */
function derive(secret: string, use: string, length: number): Buffer {
  return Buffer.from(hkdfSync('sha256', secret, '', use, length))
}
