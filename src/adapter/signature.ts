// Standard Webhooks: the signature of what Ackbox sends.
import { createHmac, createSecretKey, timingSafeEqual, type KeyObject } from 'node:crypto'
import { read, type Message, type ReadMessage } from './message.ts'
import { AdapterError } from './transaction.ts'

/** True: the message was signed with one of the secrets, at most `toleranceMs` ago. */
type Verify = (message: ReadMessage, toleranceMs: number) => boolean

/** Each secret is whsec_ and base64. There are two during a rotation; undefined ones are left out. */
export type Secrets = readonly (string | undefined)[]

/**
 * The check of signatures, for requests that no receiver handles, such as those to the `checkBack` of a handler. It returns true if Ackbox
 * has signed the message with one of the secrets, at most `toleranceMs` ago. `body` must be the text or the bytes as received.
 */
export function verifier(
  secrets: Secrets,
  { toleranceMs = 300_000 }: { toleranceMs?: number | undefined } = {}
): (message: Message) => boolean {
  const verify = readVerifier(secrets)
  return message => verify(read(message), toleranceMs)
}

export function readVerifier(secrets: Secrets): Verify {
  const keys = secrets.filter(secret => secret !== undefined).map(keyOf)
  if (keys.length === 0)
    throw new AdapterError('A secret is missing: `npx ackbox key secret DOWNSTREAM` prints it.')
  return ({ headers, payload }, toleranceMs) => {
    const id = headers.get('webhook-id') ?? ''
    const timestamp = headers.get('webhook-timestamp') ?? ''
    const given = (headers.get('webhook-signature') ?? '').split(' ')
    if (!idForm.test(id) || !/^\d{1,12}$/.test(timestamp)) return false
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

/** The characters of Ackbox's ids. With a dot, an id could hold the time, and the time a part of the body: what is signed would be the same. */
const idForm = /^[\w-]+$/

/** With or without padding. Node decodes other text without an error. */
const base64Form = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?$/

function keyOf(secret: string): KeyObject {
  const text = typeof secret === 'string' ? secret.replace(/^whsec_/, '') : ''
  // The message never contains the secret.
  if (!base64Form.test(text) || Buffer.from(text, 'base64').length < 24)
    throw new AdapterError(
      'A secret must be whsec_ and base64 of 24 bytes or more: `npx ackbox key secret DOWNSTREAM` prints it.'
    )
  return createSecretKey(text, 'base64')
}
