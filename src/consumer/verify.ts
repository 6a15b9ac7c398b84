// Standard Webhooks v1: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
import { createHmac, createSecretKey, timingSafeEqual, type KeyObject } from 'node:crypto'
import { AdapterError } from '../adapter/transaction.ts'
import type { ReadMessage } from './message.ts'

/** Whether the message was signed with one of the secrets, at most `toleranceMs` ago. */
export type Verify = (message: ReadMessage, toleranceMs: number) => boolean

/** `secrets`: whsec_ and base64; two of them during a rotation. */
export function verifier(secrets: readonly string[]): Verify {
  const keys = secrets.map(keyOf)
  if (keys.length === 0)
    throw new AdapterError('receiver needs a secret: `npx ackbox key secret DOWNSTREAM` prints it.')
  return ({ headers, payload }, toleranceMs) => {
    const id = headers.get('webhook-id')
    const timestamp = headers.get('webhook-timestamp') ?? ''
    const given = (headers.get('webhook-signature') ?? '').split(' ')
    if (!id || !/^\d{1,12}$/.test(timestamp)) return false
    if (Math.abs(Date.now() - Number(timestamp) * 1_000) > toleranceMs) return false
    return keys.some(key => {
      const right = Buffer.from(
        `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.`).update(payload).digest('base64')}`
      )
      return given.some(one => {
        const signature = Buffer.from(one)
        return signature.length === right.length && timingSafeEqual(signature, right)
      })
    })
  }
}

function keyOf(secret: string): KeyObject {
  const text = typeof secret === 'string' ? secret.replace(/^whsec_/, '') : ''
  // Node decodes garbage without a word. The secret itself is never named.
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(text))
    throw new AdapterError(
      'A secret of receiver must be whsec_ and base64: `npx ackbox key secret DOWNSTREAM` prints it.'
    )
  return createSecretKey(text, 'base64')
}
