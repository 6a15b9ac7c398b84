import { errors } from 'undici'
import type { Outcome } from '../domain/types.ts'
import { isCertificateError, isTlsError } from '../runtime/tls.ts'
import { codeOf, isError } from '../runtime/text-of.ts'

export type Failed = Extract<Outcome, { kind: 'failed' }>

/** An error that carries an outcome, also through a socket's error events. */
export class Failure extends Error {
  readonly outcome: Failed

  constructor(outcome: Failed) {
    super(outcome.reason)
    this.outcome = outcome
  }
}

export const failed = (reason: string): Failed => ({ kind: 'failed', reason })
export const failure = (reason: string): Failure => new Failure(failed(reason))

const words: Readonly<Record<string, string>> = {
  UND_ERR_CONNECT_TIMEOUT: 'connect_timeout',
  ETIMEDOUT: 'connect_timeout',
  ECONNREFUSED: 'connection_refused',
  ECONNRESET: 'connection_closed',
  EPIPE: 'connection_closed',
  ECONNABORTED: 'connection_closed',
  UND_ERR_SOCKET: 'connection_closed',
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: 'protocol: content-length',
  EHOSTUNREACH: 'unreachable',
  ENETUNREACH: 'unreachable',
  EHOSTDOWN: 'unreachable',
  ENETDOWN: 'unreachable',
  EADDRNOTAVAIL: 'unreachable',
  UND_ERR_HEADERS_OVERFLOW: 'headers_too_long',
  UND_ERR_DESTROYED: 'shutdown',
  UND_ERR_CLOSED: 'shutdown',
  UND_ERR_ABORTED: 'shutdown'
}

/** The outcome of an error before the answer. The reason starts with a stable word; the error's own text is never shown. */
export function failureOf(error: unknown): Failed {
  if (error instanceof Failure) return error.outcome
  // The text in parentheses is the parser's own, never the downstream's.
  if (error instanceof errors.HTTPParserError)
    return failed(`protocol: ${/\((.*)\)$/.exec(error.message)?.[1] ?? 'not HTTP'}`)
  const code = codeOf(error) ?? 'unknown'
  if (isCertificateError(code)) return { kind: 'failed', reason: `tls: ${code}`, alarm: 'TLS' }
  if (isTlsError(code)) return failed(`tls: ${code}`)
  // undici's messages for an upgrade, and for an answer without a request.
  if (isError(error) && error.message === 'bad upgrade') return failed('protocol: 101')
  if (isError(error) && error.message === 'bad response') return failed('protocol')
  return failed(words[code] ?? `error: ${code}`)
}
