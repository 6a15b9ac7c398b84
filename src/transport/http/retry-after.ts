const longestMs = 3_600_000

/**
 * `Retry-After` in ms, at most an hour; undefined when there is none or it makes no sense (RFC 9110, section 10.2.3). A date counts
 * from the answer's own `Date`, so that neither clock must be right.
 */
export function retryAfter(
  value: string | undefined,
  date: string | undefined,
  now: number
): number | undefined {
  if (value === undefined) return undefined
  const text = value.trim()
  const ms = /^\d+$/.test(text)
    ? Number(text) * 1_000
    : dateOf(text, now) - (dateOf((date ?? '').trim(), now) || now)
  return ms >= 0 ? Math.min(ms, longestMs) : undefined
}

const months = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec']
const time = String.raw`(?<hour>\d\d):(?<minute>\d\d):(?<second>\d\d)`
const month = `(?<month>${months.join('|')})`
/** The three forms of a date (RFC 9110, section 5.6.7). Servers send the first; the others are old, and must be read. */
const forms = [
  String.raw`(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (?<day>\d\d) ${month} (?<year>\d{4}) ${time} GMT`,
  String.raw`(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, (?<day>\d\d)-${month}-(?<year>\d\d) ${time} GMT`,
  String.raw`(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ${month} (?<day>[ \d]\d) ${time} (?<year>\d{4})`
].map(form => new RegExp(`^${form}$`))

/** NaN if the text is not a date. */
function dateOf(text: string, now: number): number {
  for (const form of forms) {
    const { groups } = form.exec(text) ?? {}
    if (!groups) continue
    const { year = '', day, hour, minute, second } = groups
    const index = months.indexOf(groups['month'] ?? '')
    const at = Date.UTC(yearOf(year, now), index, Number(day), Number(hour), Number(minute), Number(second))
    // The 31st of a month that has 30 days is no date.
    return new Date(at).getUTCMonth() === index ? at : Number.NaN
  }
  return Number.NaN
}

/** Of two digits it is the year that is at most 50 years ahead. */
function yearOf(text: string, now: number): number {
  if (text.length === 4) return Number(text)
  const current = new Date(now).getUTCFullYear()
  const year = current - (current % 100) + Number(text)
  return year > current + 50 ? year - 100 : year
}
