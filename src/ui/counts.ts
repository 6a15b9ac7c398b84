// Counts of the API: a number, or a text like `10,000+` above its limit.
export type Count = number | string

export interface Sum {
  n: number
  /** True: `n` is only a lower bound. */
  isMore: boolean
}

export function sumOf(counts: readonly Count[]): Sum {
  let n = 0
  let isMore = false
  for (const count of counts) {
    if (typeof count === 'number') n += count
    else {
      n += Number(count.replaceAll(/\D/g, ''))
      isMore = true
    }
  }
  return { n, isMore }
}

/** The API counts up to 10,000. A text with less: too many rows to count all that match. */
export const isUncounted = (count: Count): boolean => typeof count === 'string' && sumOf([count]).n < 10_000

/** `310,000`, `10,301+`. */
export const sumText = ({ n, isMore }: Sum): string => `${n.toLocaleString('en')}${isMore ? '+' : ''}`
export const countText = (count: Count): string => sumText(sumOf([count]))
