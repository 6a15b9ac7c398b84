// Counts as the API says them: a number, or beyond what it counts a text like `10,000+`.
export type Count = number | string

export interface Sum {
  n: number
  /** It is at least this many. */
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

/** `310,000`, `10,301+`. */
export const sumText = ({ n, isMore }: Sum): string => `${n.toLocaleString('en')}${isMore ? '+' : ''}`
export const countText = (count: Count): string => sumText(sumOf([count]))
