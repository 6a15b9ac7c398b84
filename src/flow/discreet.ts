import type { Outcome } from '../task/task.ts'

/** Headers that log in somewhere, by their names. */
const login = /auth|cookie|token|secret|password|credential|api-?key/i
/** What is shorter is no secret, and would be found in every answer. */
const shortest = 8

/**
 * The outcome without what the handler's request logged in with. A downstream that echoes its request, as many do in their
 * error pages, would have us keep its own key and show it to everybody who may read tasks.
 */
export function discreet(outcome: Outcome, request: unknown): Outcome {
  const secrets = secretsOf(request)
  if (secrets.length === 0) return outcome
  const hide = (text: string): string =>
    secrets.reduce((shown, secret) => shown.replaceAll(secret, '[masked]'), text)
  const { answer, headers, warning } = outcome
  const shown = {
    ...outcome,
    ...(answer === undefined ? {} : { answer: hideIn(answer, hide) }),
    ...(headers === undefined
      ? {}
      : { headers: headers.map(([name, value]): [string, string] => [name, hide(value)]) }),
    ...(warning === undefined ? {} : { warning: hide(warning) })
  }
  return shown.kind === 'delivered' ? shown : { ...shown, reason: hide(shown.reason) }
}

function hideIn(answer: Uint8Array, hide: (text: string) => string): Uint8Array {
  const text = Buffer.from(answer.buffer, answer.byteOffset, answer.byteLength).toString('latin1')
  const shown = hide(text)
  return shown === text ? answer : Buffer.from(shown, 'latin1')
}

/** The values of its headers or attachments that log in, as they are and as an echo may write them; the longest first. */
function secretsOf(request: unknown): string[] {
  const { headers, attachments } = (request ?? {}) as { headers?: unknown; attachments?: unknown }
  const found = new Set<string>()
  for (const named of [headers, attachments]) {
    if (typeof named !== 'object' || named === null) continue
    for (const [name, value] of Object.entries(named)) {
      if (typeof value !== 'string' || !login.test(name)) continue
      // `Bearer …`, `Basic …`: what follows is the secret, and may come back alone.
      for (const secret of [value, value.replace(/^\w+ +/, '')]) {
        if (secret.length < shortest) continue
        const inJson = JSON.stringify(secret).slice(1, -1)
        for (const written of [secret, inJson, inJson.replaceAll('/', '\\/'), encodeURIComponent(secret)])
          found.add(written)
      }
    }
  }
  return [...found].toSorted((a, b) => b.length - a.length)
}
