import { createHmac, createSecretKey, hkdfSync, timingSafeEqual, type KeyObject } from 'node:crypto'

/** Where it goes out, and comes back. */
export const tokenHeader = 'ackbox-callback-token'

/** The delivery and the attempt that a token was made for. */
export interface TokenClaims {
  downstream: string
  attempt: number
  /** In ms since 1970, as issue() was told it. The token of a task that is gone is known by it: see db/receipts.ts. */
  issuedMs: number
}

export interface Tokens {
  issue(made: { taskNo: string; downstream: string; attempt: number; at: Date }): string
  /** null for whatever does not fit, whyever: who guesses learns nothing. Asks no database. */
  check(token: unknown, taskNo: string, now: Date): TokenClaims | null
}

const VALID_MS = 90 * 24 * 3_600_000
const LONGEST = 200

// version . key id . issued at, in s since 1970, base 36 . downstream . attempt . HMAC-SHA256 in base64url
const shape =
  /^v1\.([A-Za-z0-9_-]{8})\.([0-9a-z]{1,9})\.([a-z][a-z0-9-]{0,31})\.([1-9][0-9]{0,9})\.[A-Za-z0-9_-]{43}$/

/**
 * The callback tokens. `previous` is a key that is on its way out: it still opens what it closed.
 * A token is one text only: the HMAC is over its own characters and compared in base64url, so nothing that
 * decodes to the same (padding, leading zeros, a line feed) passes for it.
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
      // From the future is fine: it is ours, and the clocks of two hosts differ.
      const issuedMs = Number.parseInt(issued, 36) * 1_000
      if (now.getTime() - issuedMs > VALID_MS) return null
      return { downstream, attempt: Number(attempt), issuedMs }
    }
  }
}

/** The taskNo comes last: what is before it has a fixed number of dots, so no two inputs read alike. */
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

/** The secret that requests to this downstream are signed with, as Standard Webhooks writes them. */
export function signingSecret(secret: string, downstream: string): string {
  return `whsec_${derive(secret, `ackbox signing v1 ${downstream}`, 32).toString('base64')}`
}

/** One master secret, a key of its own for each use: none of them says anything about another. */
function derive(secret: string, use: string, length: number): Buffer {
  return Buffer.from(hkdfSync('sha256', secret, '', use, length))
}
