/** What is known of a half message when its producer was asked. Counts are those before this check. */
export interface CheckStanding {
  answered: number
  unanswered: number
  /** Since it was prepared. */
  ageMs: number
  /** The wait that its producer asked for, before the first check and between them. */
  checkAfterMs: number
}

const hourMs = 3_600_000
const firstMs = 10_000
/** After so many times UNKNOWN, or so long, a person must hear of it. */
const mostAnswered = 15
const stuckAfterMs = 24 * hourMs

/**
 * When to ask again after a check that ended nothing. It goes on for ever: nobody but the producer, or a person, may say what
 * became of it. `random` in [0, 1) is the jitter of the backoff.
 */
export function nextCheck(
  answer: 'UNKNOWN' | 'NONE',
  { answered, unanswered, ageMs, checkAfterMs }: CheckStanding,
  random: number
): { waitMs: number; isStuck: boolean } {
  const isStuck = answered + (answer === 'UNKNOWN' ? 1 : 0) >= mostAnswered || ageMs >= stuckAfterMs
  if (isStuck) return { waitMs: hourMs, isStuck }
  if (answer === 'UNKNOWN') return { waitMs: checkAfterMs, isStuck }
  const waitMs = Math.min(hourMs, firstMs * 2 ** Math.min(unanswered, 30))
  return { waitMs: waitMs * (0.9 + random / 5), isStuck }
}
