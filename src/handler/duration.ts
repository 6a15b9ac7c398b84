// A member and not an alias: for an alias the compiler would say 'Duration' and nothing of its forms.
interface Forms {
  duration: number | `${number}ms` | `${number}s` | `${number}m` | `${number}h` | `${number}d`
}

/** A duration such as '500ms', '10s', '1m', '2h', '1d', or a number of milliseconds. */
export type Duration = Forms['duration']

const unitMs: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** Whole milliseconds, or undefined if it is not a duration. */
export function durationMs(value: unknown): number | undefined {
  if (typeof value === 'number') return Number.isFinite(value) && value >= 0 ? Math.round(value) : undefined
  if (typeof value !== 'string') return undefined
  const [, number, unit] = /^(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d)$/.exec(value) ?? []
  return number && unit ? Math.round(Number(number) * (unitMs[unit] ?? 0)) : undefined
}

/** The shortest form: 90000 is '90s', 60000 is '1m'. */
export function durationText(ms: number): string {
  const [unit, size] = Object.entries(unitMs).findLast(([, each]) => ms >= each && ms % each === 0) ?? [
    'ms',
    1
  ]
  return `${ms / size}${unit}`
}
