// Failures that differ only in their numbers and ids have the same fingerprint.
import { hash } from 'node:crypto'

interface FailureFacts {
  downstream: string
  reason: string
  statusCode: number | null
  line: string | null
}

const mostLine = 200

/**
 * The first line with text in it, at most 200 characters. Numbers, hexadecimal ids and uuids become `#`. Null: there is no text.
 */
export function firstLine(text: string | null | undefined): string | null {
  if (!text) return null
  const line = text
    // A limit on the text that the regular expressions below search.
    .slice(0, 2_000)
    .split(/[\r\n]+/)
    .map(raw => raw.trim())
    .find(trimmed => trimmed !== '')
  if (line === undefined) return null
  const plain = line
    .replaceAll(/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/gi, '#')
    .replaceAll(/\b[0-9a-z_-]{12,}\b/gi, run => (/\d/.test(run) ? '#' : run))
    .replaceAll(/\d+(?:[.:]\d+)*/g, '#')
    .replaceAll('\0', '')
  // Array.from keeps a surrogate pair whole.
  return Array.from(plain).slice(0, mostLine).join('')
}

/** 16 hexadecimal digits. */
export const fingerprint = ({ downstream, reason, statusCode, line }: FailureFacts): string =>
  hash('md5', [downstream, reason, statusCode ?? '', line ?? ''].join('\n'), 'hex').slice(0, 16)
