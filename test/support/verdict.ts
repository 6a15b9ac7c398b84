// Reads the result of a test file from its TAP output, with the output of programs that a failed test put there.
import type { Test } from 'tap'

export interface Verdict {
  source: string
  pass: number
  fail: number
  skip: number
  seconds: number
  /** Why it counts as failed; undefined: it passed. */
  failed: string | undefined
  /** The part of its output that shows the failure. */
  complaint: string[]
  /** The titles of skipped tests, with the reason. */
  skipped: string[]
}

export interface Ended {
  code: number | null
  signal: NodeJS.Signals | null
  seconds: number
  isLate: boolean
}

/** A file should take 5 s. A file that takes longer than this should be checked, on any machine. */
const slowSeconds = 30

/** Lines about the files that took long, the slowest first; none if there are none. */
export function slowFiles(verdicts: readonly Pick<Verdict, 'source' | 'seconds'>[]): string[] {
  const slow = verdicts.filter(one => one.seconds > slowSeconds).toSorted((a, b) => b.seconds - a.seconds)
  if (slow.length === 0) return []
  return [
    `Slow files, more than ${slowSeconds} s each:`,
    ...slow.map(one => `  ${one.seconds.toFixed(1).padStart(6)} s  ${one.source}`)
  ]
}

const counts = /^# \{ total: \d+, pass: (\d+)(?:, fail: (\d+))?(?:, todo: \d+)?(?:, skip: (\d+))? \}$/m

/** A file passes only if its output ends with a count of its assertions. */
export function verdictOf(source: string, text: string, { code, signal, seconds, isLate }: Ended): Verdict {
  const counted = counts.exec(text)
  const [pass, fail, skip] = [1, 2, 3].map(group => Number(counted?.[group] ?? 0)) as [number, number, number]
  const failed = isLate
    ? 'it did not end'
    : signal
      ? `it was ended by ${signal}`
      : code !== 0
        ? `exit code ${code}`
        : !counted
          ? 'it ended without a count of its assertions'
          : pass + skip === 0
            ? 'it asserts nothing'
            : fail > 0
              ? `${fail} failed`
              : undefined
  return {
    source,
    pass,
    fail: failed === undefined ? 0 : Math.max(1, fail),
    skip,
    seconds,
    failed,
    complaint: failed === undefined ? [] : complaintOf(text),
    skipped: text.split('\n').filter(line => /^\s*ok .* # SKIP|^\s*# SKIP /.test(line))
  }
}

const told = '  | '
const [firstTold, lastTold] = [30, 60]

/** Writes the first and the last lines of a program's output into the output of a test that failed, where `verdictOf` finds them. */
export function tellOutput(t: Pick<Test, 'comment'>, name: string, output: string): void {
  const lines = output.trimEnd().split('\n')
  const left = lines.length - firstTold - lastTold
  const shown =
    left > 0 ? [...lines.slice(0, firstTold), `… ${left} lines …`, ...lines.slice(-lastTold)] : lines
  t.comment([`the output of ${name}:`, ...shown].map(line => told + line).join('\n'))
}

const isTold = (line: string): boolean => line.trimStart().startsWith(`# ${told}`)

/** The failed assertions with the values that they compared, then the titles around them; else the last lines. */
function complaintOf(text: string): string[] {
  const found: string[] = []
  let until: RegExp | undefined
  let isSource = false
  for (const line of text.split('\n')) {
    if (isTold(line)) found.push(line)
    else if (/^\s*not ok /.test(line)) {
      found.push(line)
      // A line with a time is the title of a test; the block below it only has its location.
      until = line.includes(' # time=')
        ? undefined
        : new RegExp(`^${/^\s*/.exec(line)?.[0] ?? ''} {2}\\.\\.\\.$`)
    } else if (until) {
      const key = /^\s*(\w+):/.exec(line)?.[1]
      if (key === 'source') isSource = true
      else if (key === 'diff' || until.test(line)) isSource = false
      if (!isSource) found.push(line)
      if (until.test(line)) until = undefined
    }
  }
  return found.length > 0 ? found : text.trimEnd().split('\n').slice(-30)
}

export const sum = (all: readonly Verdict[], what: 'pass' | 'fail' | 'skip' | 'seconds'): number =>
  all.reduce((total, one) => total + one[what], 0)
