import type { AttemptRow } from '../db/moves.ts'
import { masked, maskedBytes } from '../task/mask.ts'
import type { Outcome } from '../task/task.ts'

/** What a try came to, as the row that is kept of it: without the proofs that went out with it. */
export function attemptRow(
  outcome: Outcome,
  { ms, startedAt, node }: Pick<AttemptRow, 'ms' | 'startedAt' | 'node'>
): AttemptRow {
  return {
    outcome: outcome.kind,
    reason: outcome.kind === 'delivered' ? null : storable(outcome.reason),
    statusCode: outcome.status ?? null,
    answer: outcome.answer?.length ? maskedBytes(outcome.answer) : null,
    headers: outcome.headers?.length ? masked(JSON.stringify(outcome.headers)) : null,
    address: outcome.address ?? null,
    warning: outcome.warning === undefined ? null : storable(outcome.warning),
    alarm: outcome.kind === 'failed' ? (outcome.alarm ?? null) : null,
    ms,
    startedAt,
    node
  }
}

/** PostgreSQL's text holds no NUL, and what an error says may be anything, the headers that were sent included. */
const storable = (text: string): string => masked(text.replaceAll('\0', '\uFFFD'))
