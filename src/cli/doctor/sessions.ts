// Checks our sessions in PostgreSQL: whose code they run, and which limits of the server end them.
import type { ForeignCode } from '../../db/foreign-code.ts'

interface Judged {
  level: 'ok' | 'warn' | 'fix'
  found: string
  remedy?: string
}

export function judgeForeign(foreign: readonly ForeignCode[]): Judged {
  const [first] = foreign
  if (!first) return { level: 'ok', found: 'no other role can have its code run by our statements' }
  const more = foreign.length > 1 ? `, and ${foreign.length - 1} more` : ''
  return {
    level: first.isThere ? 'fix' : 'warn',
    found: `${first.found}${more}`,
    remedy: foreign.map(({ remedy }) => remedy).join(' ')
  }
}

/** A session sets its other limits itself when it begins. Before PostgreSQL 17 this one does not exist, and could not be set. */
export function judgeTransactionTimeout(ms = '0'): Judged {
  if (ms === '0') return { level: 'ok', found: 'none' }
  return {
    level: 'warn',
    found: `${ms} ms in our sessions: PostgreSQL closes the connection of a longer statement or migration`,
    remedy: 'alter role USER set transaction_timeout = 0'
  }
}
