import { count, percentile, type TallyCounts, type SeenTask } from './tally.ts'

const number = new Intl.NumberFormat('en-US')

export const ms = (value: number | undefined): string => {
  if (value === undefined) return '–'
  return value < 1_000 ? `${Math.round(value)} ms` : `${(value / 1_000).toFixed(1)} s`
}

/** The progress of the run, in one line of at most `columns`. */
export function progressLine(
  total: number,
  accepted: number,
  counts: TallyCounts,
  perSecond: number,
  columns: number
): string {
  const ended = counts.handled + counts.failed
  const filled = Math.round(20 * Math.min(1, ended / Math.max(1, total)))
  const parts = [
    `[${'█'.repeat(filled)}${'·'.repeat(20 - filled)}]`,
    `accepted ${number.format(accepted)}`,
    `delivered ${number.format(counts.delivered)}`,
    `HANDLED ${number.format(counts.handled)}`,
    `retried ${number.format(counts.retried)}`,
    `FAILED ${number.format(counts.failed)}`,
    `${number.format(Math.round(perSecond))} tasks/s`,
    `p50 ${ms(percentile(counts.latencies, 0.5))}`,
    `p99 ${ms(percentile(counts.latencies, 0.99))}`
  ]
  return parts.join('  ').slice(0, columns)
}

/** One line for each messageCode and a total, columns aligned. */
export function table(seen: Iterable<SeenTask>): string {
  const tasks = [...seen]
  const codes = [...new Set(tasks.map(task => task.messageCode))].toSorted()
  const head = [
    '',
    'tasks',
    'HANDLED',
    'FAILED',
    'SENDING',
    'deliveries',
    'attempts',
    'retried',
    'p50',
    'p99'
  ]
  const rows = [...codes.map(code => row(code, count(tasks, code))), row('all', count(tasks))]
  return aligned([head, ...rows])
}

function row(name: string, counts: TallyCounts): string[] {
  const { tasks, handled, failed, deliveries, attempts, retried, latencies } = counts
  const numbers = [tasks, handled, failed, tasks - handled - failed, deliveries, attempts, retried]
  return [
    name,
    ...numbers.map(each => number.format(each)),
    ms(percentile(latencies, 0.5)),
    ms(percentile(latencies, 0.99))
  ]
}

/** Aligns columns: the first `left` to the left, the others to the right. */
export function aligned(rows: string[][], left = 1): string {
  const widths = (rows[0] ?? []).map((_, at) => Math.max(...rows.map(cells => (cells[at] ?? '').length)))
  return rows
    .map(cells =>
      cells
        .map((cell, at) => (at < left ? cell.padEnd(widths[at] ?? 0) : cell.padStart(widths[at] ?? 0)))
        .join('  ')
    )
    .join('\n')
}
