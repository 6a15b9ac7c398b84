// The run as a picture: the faults as bars, and below them, for each second, the accepted tasks, the arrivals and their lag, and
// the number of tasks in each state.
import type { History } from '../history.ts'
import { isOk } from '../judge/evidence.ts'
import { escaped } from './escaped.ts'

const width = 1_080
const left = 90
const laneHeight = 16
const chartHeight = 90
const gap = 26

interface Chart {
  title: string
  unit: string
  lines: { name: string; color: string; values: number[] }[]
}

export function timeline(history: History): string {
  const from = history.startedAt
  const last = Math.max(history.loadEndedAt, ...history.arrivals.map(({ at }) => at))
  const seconds = Math.max(1, Math.ceil((last - from) / 1_000))
  const x = (at: number): number => left + (Math.max(0, at - from) / (seconds * 1_000)) * (width - left - 10)
  const lanes = [...new Set(history.faults.map(({ target }) => target))].sort()
  const charts = chartsOf(history, from, seconds)
  const top = lanes.length * laneHeight + 10
  const height = top + charts.length * (chartHeight + gap) + 20
  return `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="Faults over time, with throughput, lag and states">
${ticks(seconds, height, x, from)}
${lanes.map((lane, at) => laneOf(history, lane, at * laneHeight, x)).join('\n')}
${charts.map((chart, at) => chartOf(chart, top + at * (chartHeight + gap), seconds)).join('\n')}
</svg>`
}

function laneOf({ faults }: History, lane: string, y: number, x: (at: number) => number): string {
  const bars = faults
    .filter(({ target }) => target === lane)
    .map(({ action, from, to }) => {
      const wide = Math.max(3, x(to) - x(from))
      const title = `${action}, ${((to - from) / 1_000).toFixed(1)} s`
      return `<rect class="fault ${escaped(action.split('.')[0] ?? '')}" x="${x(from).toFixed(1)}" y="${y + 2}" width="${wide.toFixed(1)}" height="${laneHeight - 4}"><title>${escaped(title)}</title></rect>`
    })
  return `<text class="lane" x="${left - 6}" y="${y + laneHeight - 4}">${escaped(lane)}</text>${bars.join('')}`
}

function chartsOf(history: History, from: number, seconds: number): Chart[] {
  const second = (at: number) => Math.min(seconds - 1, Math.max(0, Math.floor((at - from) / 1_000)))
  const perSecond = (times: number[]): number[] => {
    const counts = new Array<number>(seconds).fill(0)
    for (const at of times) counts[second(at)] = (counts[second(at)] ?? 0) + 1
    return counts
  }
  const accepted = history.calls
    .filter(({ kind }) => kind === 'first')
    .flatMap(({ taskNo, tries }) =>
      tries.filter(({ status }) => isOk(status)).map(({ at, ms }) => ({ taskNo, at: at + ms }))
    )
  const unclear = history.calls.flatMap(({ tries }) =>
    tries.filter(({ status }) => status === 0 || status >= 500).map(({ at, ms }) => at + ms)
  )
  const firsts = new Map<string, number>()
  for (const { taskNo, at } of history.arrivals) if (!firsts.has(taskNo)) firsts.set(taskNo, at)
  const starts = new Map(
    history.tasks.map(task => [task.taskNo, Date.parse(task.deliverStartTime ?? '') || 0])
  )
  const lags = Array.from({ length: seconds }, (): number[] => [])
  for (const { taskNo, at } of accepted) {
    const due = Math.max(at, starts.get(taskNo) ?? 0)
    lags[second(due)]?.push(Math.max(0, (firsts.get(taskNo) ?? due) - due))
  }
  const part = (share: number) =>
    lags.map(all => all.toSorted((a, b) => a - b)[Math.floor((all.length - 1) * share)] ?? 0)
  return [
    {
      title: 'Throughput',
      unit: '/s',
      lines: [
        { name: 'accepted', color: '#2f6fde', values: perSecond(accepted.map(({ at }) => at)) },
        { name: 'arrived', color: '#1f9d55', values: perSecond(history.arrivals.map(({ at }) => at)) },
        { name: 'unclear answers', color: '#d64545', values: perSecond(unclear) }
      ]
    },
    {
      title: 'Lag of the first arrival',
      unit: ' ms',
      lines: [
        { name: 'median', color: '#1f9d55', values: part(0.5) },
        { name: 'worst', color: '#e08e0b', values: part(1) }
      ]
    },
    { title: 'States', unit: '', lines: statesOf(history, accepted, second, seconds) }
  ]
}

function statesOf(
  history: History,
  accepted: { at: number }[],
  second: (at: number) => number,
  seconds: number
): Chart['lines'] {
  const steps = { sending: new Array<number>(seconds).fill(0), handled: new Array<number>(seconds).fill(0) }
  for (const { at } of accepted) steps.sending[second(at)] = (steps.sending[second(at)] ?? 0) + 1
  for (const { deliveries } of history.tasks) {
    const ends = deliveries.map(({ handledAt }) => Date.parse(handledAt ?? ''))
    const end = Math.max(...ends)
    if (!Number.isFinite(end)) continue
    steps.sending[second(end)] = (steps.sending[second(end)] ?? 0) - 1
    steps.handled[second(end)] = (steps.handled[second(end)] ?? 0) + 1
  }
  return [
    { name: 'accepted, not yet HANDLED', color: '#2f6fde', values: summed(steps.sending) },
    { name: 'HANDLED', color: '#1f9d55', values: summed(steps.handled) }
  ]
}

function summed(values: number[]): number[] {
  let sum = 0
  return values.map(value => (sum += value))
}

function chartOf({ title, unit, lines }: Chart, top: number, seconds: number): string {
  const most = Math.max(1, ...lines.flatMap(({ values }) => values))
  const step = (width - left - 10) / seconds
  const drawn = lines.map(({ name, color, values }) => {
    const points = values.map(
      (value, at) =>
        `${(left + (at + 0.5) * step).toFixed(1)},${(top + gap + chartHeight - gap - (value / most) * (chartHeight - gap)).toFixed(1)}`
    )
    return `<polyline fill="none" stroke="${color}" stroke-width="1.5" points="${points.join(' ')}"><title>${escaped(name)}</title></polyline>`
  })
  const legend = lines
    .map(({ name, color }, at) => `<tspan fill="${color}" dx="${at === 0 ? 8 : 12}">${escaped(name)}</tspan>`)
    .join('')
  return `<text class="title" x="${left}" y="${top + 14}">${escaped(title)}${legend}</text>
<text class="lane" x="${left - 6}" y="${top + gap + 8}">${Math.round(most)}${unit}</text>
<line class="axis" x1="${left}" x2="${width - 10}" y1="${top + chartHeight}" y2="${top + chartHeight}"/>${drawn.join('')}`
}

function ticks(seconds: number, height: number, x: (at: number) => number, from: number): string {
  const every = [5, 10, 30, 60, 120, 300].find(step => seconds / step <= 20) ?? 600
  return Array.from({ length: Math.floor(seconds / every) + 1 }, (_, at) => {
    const place = x(from + at * every * 1_000).toFixed(1)
    return `<line class="tick" x1="${place}" x2="${place}" y1="0" y2="${height - 16}"/><text class="tickText" x="${place}" y="${height - 4}">${at * every} s</text>`
  }).join('')
}
