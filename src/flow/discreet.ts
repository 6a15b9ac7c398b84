import type { Outcome } from '../task/task.ts'

/** Headers, and members of a query, that log in somewhere, by their names. */
const login = /auth|cookie|token|secret|password|credential|api[-_]?key|^key$|^sig(?:nature)?$/i
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
    secrets.reduce((shown, secret) => withoutTail(shown.replaceAll(secret, '[masked]'), secret), text)
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

/** Answers are cut, perhaps in the midst of a secret. */
function withoutTail(text: string, secret: string): string {
  for (let length = Math.min(secret.length - 1, text.length); length >= shortest; length--)
    if (text.endsWith(secret.slice(0, length))) return `${text.slice(0, -length)}[masked]`
  return text
}

function hideIn(answer: Uint8Array, hide: (text: string) => string): Uint8Array {
  const text = Buffer.from(answer.buffer, answer.byteOffset, answer.byteLength).toString('latin1')
  const shown = hide(text)
  return shown === text ? answer : Buffer.from(shown, 'latin1')
}

/** The values of its headers or attachments that log in, as they are and as an echo may write them; the longest first. */
function secretsOf(request: unknown): string[] {
  const { headers, attachments, url } = (request ?? {}) as { [name: string]: unknown }
  const found = new Set<string>()
  for (const named of [headers, attachments, queryOf(url)]) {
    if (typeof named !== 'object' || named === null) continue
    for (const [name, value] of Object.entries(named)) {
      if (typeof value !== 'string' || !login.test(name)) continue
      // `Bearer …`, `Basic …`: what follows is the secret, and may come back alone.
      for (const secret of [value, value.replace(/^\w+ +/, '')]) {
        if (secret.length < shortest) continue
        const inJson = JSON.stringify(secret).slice(1, -1)
        for (const written of [secret, inJson, inJson.replaceAll('/', '\\/'), encoded(secret)])
          found.add(written)
      }
    }
  }
  return [...found].toSorted((a, b) => b.length - a.length)
}

function queryOf(url: unknown): object | undefined {
  const text = typeof url === 'string' ? url : String((url as { href?: string } | undefined)?.href)
  return text.includes('?') && URL.canParse(text) ? Object.fromEntries(new URL(text).searchParams) : undefined
}

/** Half a surrogate pair cannot be percent-encoded: then nobody will have written it so. */
function encoded(secret: string): string {
  try {
    return encodeURIComponent(secret)
  } catch {
    return secret
  }
}
