// Checks that no other role can have its code run by the statements of Ackbox.
import type { ForeignCode } from '../../db/foreign-code.ts'

export function judgeForeign(foreign: readonly ForeignCode[]): {
  level: 'ok' | 'warn' | 'fix'
  found: string
  remedy?: string
} {
  const [first] = foreign
  if (!first) return { level: 'ok', found: 'no other role can have its code run by our statements' }
  const more = foreign.length > 1 ? `, and ${foreign.length - 1} more` : ''
  return {
    level: first.isThere ? 'fix' : 'warn',
    found: `${first.found}${more}`,
    remedy: foreign.map(({ remedy }) => remedy).join(' ')
  }
}
