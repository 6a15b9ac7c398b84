import { useEffect, useRef, useState } from 'preact/hooks'
import uPlot from 'uplot'
import { theme } from './state.ts'

export interface Line {
  name: string
  /** The name of a colour in style.css. */
  color: string
  values: (number | null)[]
}

const colour = (name: string): string =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()

/** Hours and minutes. For more than a day, with the date before them. */
function axisTimes(_plot: uPlot, seconds: number[]): string[] {
  const two = (n: number): string => String(n).padStart(2, '0')
  const isLong = (seconds.at(-1) ?? 0) - (seconds[0] ?? 0) > 86_400
  return seconds.map(one => {
    const at = new Date(one * 1000)
    const date = `${two(at.getMonth() + 1)}-${two(at.getDate())}`
    const time = `${two(at.getHours())}:${two(at.getMinutes())}`
    return isLong ? (time === '00:00' ? date : `${date} ${time}`) : time
  })
}

/** A value between two gaps has no line: without its point it would be invisible. */
const pointsWithoutLine: uPlot.Series.Points.Filter = ({ data }, series, isShown) => {
  const values = data[series] ?? []
  return isShown
    ? null
    : [...values.keys()].filter(at => values[at] != null && values[at - 1] == null && values[at + 1] == null)
}

const dark = matchMedia('(prefers-color-scheme: dark)')

export function Chart({
  label,
  times,
  lines,
  unit
}: {
  label: string
  times: number[]
  lines: Line[]
  unit: (value: number) => string
}) {
  const ref = useRef<HTMLDivElement>(null)
  const [isDark, setDark] = useState(dark.matches)
  useEffect(() => {
    const change = (): void => setDark(dark.matches)
    dark.addEventListener('change', change)
    return () => dark.removeEventListener('change', change)
  }, [])
  const shown = JSON.stringify([times, lines, theme.value, isDark])
  useEffect(() => {
    const box = ref.current
    if (!box) return
    const axis = {
      stroke: colour('quiet'),
      grid: { stroke: colour('line'), width: 1 },
      ticks: { stroke: colour('line') },
      font: '12px system-ui'
    }
    const plot = new uPlot(
      {
        width: box.clientWidth,
        height: 220,
        legend: { show: false },
        cursor: { y: false },
        series: [
          {},
          ...lines.map(line => ({
            label: line.name,
            stroke: colour(line.color),
            width: 2,
            spanGaps: false,
            points: { show: times.length < 40, filter: pointsWithoutLine }
          }))
        ],
        axes: [
          { ...axis, values: axisTimes, space: 90 },
          { ...axis, size: 64, values: (_plot: uPlot, values: number[]) => values.map(unit) }
        ],
        scales: { y: { range: (_plot, _min, max) => [0, Math.max(1, max || 1) * 1.1] } }
      },
      [times, ...lines.map(line => line.values)],
      box
    )
    const watch = new ResizeObserver(() => plot.setSize({ width: box.clientWidth, height: 220 }))
    watch.observe(box)
    return () => {
      watch.disconnect()
      plot.destroy()
    }
  }, [shown])
  return (
    <figure class="chart">
      <figcaption>
        {label}
        <span class="legend">
          {lines.map(line => (
            <span key={line.name} class={`mark ${line.color}`}>
              {line.name}
            </span>
          ))}
        </span>
      </figcaption>
      <div ref={ref} />
    </figure>
  )
}

/** A small bar chart without axes. */
export function Spark({
  values,
  label,
  color = 'accent'
}: {
  values: readonly number[]
  label: string
  color?: string
}) {
  const most = Math.max(1, ...values)
  const width = 96
  const step = width / Math.max(1, values.length)
  return (
    <svg
      class={`spark ${color}`}
      viewBox={`0 0 ${width} 24`}
      width={width}
      height="24"
      role="img"
      aria-label={label}
    >
      <rect class="base" x="0" y="23" width={width} height="1" />
      {values.map((value, at) => {
        const height = value === 0 ? 0 : Math.max(2, (value / most) * 22)
        return <rect key={at} x={at * step} y={24 - height} width={Math.max(1, step - 1)} height={height} />
      })}
    </svg>
  )
}
