const longestMs = 3_600_000
/** A wait beyond a day is a mistake, not a wish. */
const absurdMs = 86_400_000

const imfFixdate = /^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/

/**
 * `Retry-After` in ms, at most an hour; undefined when there is none or it makes no sense (RFC 9110, 10.2.3). A date counts
 * from the answer's own `Date`, so that neither clock needs to be right.
 */
export function retryAfter(
  value: string | undefined,
  date: string | undefined,
  now: number
): number | undefined {
  if (value === undefined) return undefined
  const text = value.trim()
  const ms = /^\d{1,9}$/.test(text) ? Number(text) * 1_000 : dateOf(text) - (dateOf(date ?? '') || now)
  return ms >= 0 && ms <= absurdMs ? Math.min(ms, longestMs) : undefined
}

/** NaN when it is none. */
const dateOf = (text: string): number => (imfFixdate.test(text) ? Date.parse(text) : Number.NaN)
