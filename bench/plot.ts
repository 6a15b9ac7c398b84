// A line chart as SVG, without a library: those that work without a browser add 67 packages and need a newer Node.

export interface Series {
  name: string
  points: [x: number, y: number][]
  /** True: it belongs to the series before it and is drawn in its colour, dashed. */
  dashed?: boolean
}

export interface PlotOptions {
  title: string
  x: string
  y: string
  series: Series[]
  /** A logarithmic axis leaves out values of 0 and less; a linear axis begins at 0. */
  logX?: boolean
  logY?: boolean
}

interface Axis {
  ticks: number[]
  /** The position of a value on the axis, from 0 to 1. */
  at: (value: number) => number
}

const [width, height, perRow] = [760, 440, 3]
const [left, right, bottom] = [92, width - 24, height - 56]
/** The palette of Okabe and Ito: distinct for colour-blind readers too, on white and on black. */
const colours = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9']
const style = `
  text { font: 13px system-ui, sans-serif; fill: #333 } .title { font-size: 16px; font-weight: 600 }
  .paper { fill: #fff } .grid { stroke: #ddd } .axis { stroke: #666; fill: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #ccc } .paper { fill: #0d1117 } .grid { stroke: #30363d } .axis { stroke: #888 }
  }`

/** SVG text, for a file or a page. It contains its background, light or dark by the reader's setting. */
export async function plot({
  title,
  x,
  y,
  series,
  logX = false,
  logY = false
}: PlotOptions): Promise<string> {
  const drawn = series.map(one => ({
    ...one,
    points: one.points.filter(([px, py]) => (!logX || px > 0) && (!logY || py > 0))
  }))
  const all = drawn.flatMap(({ points }) => points)
  if (all.length === 0) throw new Error(`nothing to plot: ${title}`)
  const xs = all.map(([px]) => px)
  const ys = all.map(([, py]) => py)
  const across = logX ? logarithmic(xs) : linear(xs)
  const up = logY ? logarithmic(ys) : linear(ys)
  const top = 57 + 17 * Math.ceil(series.length / perRow)
  const atX = (value: number) => (left + across.at(value) * (right - left)).toFixed(1)
  const atY = (value: number) => (bottom - up.at(value) * (bottom - top)).toFixed(1)
  const name = escaped(title)
  let colour = -1
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-label="${name}">`,
    `<style>${style}\n</style>`,
    `<rect class="paper" width="${width}" height="${height}" rx="6"/>`,
    `<text class="title" x="24" y="28">${name}</text>`,
    ...across.ticks.flatMap(tick => [
      `<path class="grid" d="M${atX(tick)} ${top}V${bottom}"/>`,
      `<text x="${atX(tick)}" y="${bottom + 20}" text-anchor="middle">${shown(tick)}</text>`
    ]),
    ...up.ticks.flatMap(tick => [
      `<path class="grid" d="M${left} ${atY(tick)}H${right}"/>`,
      `<text x="${left - 8}" y="${atY(tick)}" dy="4" text-anchor="end">${shown(tick)}</text>`
    ]),
    `<path class="axis" d="M${left} ${top}V${bottom}H${right}"/>`,
    `<text x="${(left + right) / 2}" y="${height - 14}" text-anchor="middle">${escaped(x)}</text>`,
    `<text transform="translate(18 ${(top + bottom) / 2}) rotate(-90)" text-anchor="middle">${escaped(y)}</text>`,
    ...drawn.flatMap((one, index) => {
      if (!one.dashed) colour++
      const dots = one.points.map(([px, py]): Dot => [atX(px), atY(py)])
      return line(one, dots, index, colours[Math.max(0, colour) % colours.length] ?? '')
    }),
    '</svg>',
    ''
  ].join('\n')
}

type Dot = [x: string, y: string]

/** The line, a mark on each point if there are few, and its entry in the legend. */
function line({ name, dashed }: Series, dots: Dot[], index: number, colour: string): string[] {
  const stroke = `stroke="${colour}"${dashed ? ' stroke-dasharray="6 4"' : ''}`
  const x = 24 + ((index % perRow) * (right - 24)) / perRow
  const y = 48 + Math.floor(index / perRow) * 17
  const marks = dots.length > 40 ? [] : dots.map(([cx, cy]) => `<circle cx="${cx}" cy="${cy}" r="3"/>`)
  return [
    `<polyline fill="none" stroke-width="2" ${stroke} points="${dots.join(' ')}"/>`,
    `<g fill="${colour}">${marks.join('')}</g>`,
    `<path stroke-width="3" ${stroke} d="M${x} ${y}h18"/>`,
    `<text x="${x + 24}" y="${y}" dy="4">${escaped(name)}</text>`
  ]
}

function linear(values: number[]): Axis {
  const most = values.reduce((highest, value) => Math.max(highest, value), 0)
  const rough = most > 0 ? most / 6 : 1
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = ([1, 2, 5].find(factor => factor * power >= rough) ?? 10) * power
  const steps = Math.max(1, Math.ceil(most / step))
  return {
    ticks: Array.from({ length: steps + 1 }, (_, n) => n * step),
    at: value => value / (steps * step)
  }
}

function logarithmic(values: number[]): Axis {
  const logs = values.map(Math.log10)
  const from = logs.reduce((lowest, log) => Math.min(lowest, log), Infinity)
  const to = logs.reduce((highest, log) => Math.max(highest, log), -Infinity)
  const room = Math.max(0.05, (to - from) * 0.03)
  const at = (value: number) => (Math.log10(value) - from + room) / (to - from + 2 * room)
  const factors = to - from > 4 ? [1] : [1, 2, 5]
  const ticks: number[] = []
  for (let power = Math.floor(from); power <= to; power++)
    ticks.push(...factors.map(factor => factor * 10 ** power))
  return { ticks: ticks.filter(tick => at(tick) >= 0 && at(tick) <= 1), at }
}

const shown = (value: number): string => Number(value.toPrecision(6)).toLocaleString('en-US')
const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')
