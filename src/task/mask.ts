// The heads of a callback token (task/token.ts) and of a signature of Standard Webhooks; the rest of each is the secret.
const token = /(v1\.[A-Za-z0-9_-]{8}\.[0-9a-z]{1,9}\.[a-z][a-z0-9-]{0,31}\.[1-9][0-9]{0,9})\.[A-Za-z0-9_-]+/g
// As it went out, in JSON that escapes slashes, or percent-encoded.
const signature = /v1(?:,|%2C)(?:\\?[A-Za-z0-9+/]|%2[BF]){20,}(?:=|%3D|\\u003d)?/gi
// An API key (db/keys.ts), which somebody put where it does not belong.
const key = /(?:\b|(?<=%[0-9a-f]{2}))ack_[\w-]{24,}/gi
/** What each of them begins with. */
const any = /v1[.,%]|ack_/i

/**
 * Without the proofs that went out with an attempt: services that echo what they got would have us store, and show to
 * everybody who may read tasks, what lets one send a receipt. Told by their shape, so that one cut off half-way, or one
 * of an earlier attempt, is found as well.
 */
export function masked(text: string): string {
  // Nearly always there is nothing: one look in place of three.
  if (!any.test(text)) return text
  return text.replace(token, '$1.[masked]').replace(signature, 'v1,[masked]').replace(key, 'ack_[masked]')
}

/** The same for bytes of whatever encoding; they are the very same where there is nothing to hide. */
export function maskedBytes(bytes: Uint8Array): Uint8Array {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1')
  const shown = masked(text)
  return shown === text ? bytes : Buffer.from(shown, 'latin1')
}
