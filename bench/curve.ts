// The plot of the drain. Each mode is measured by its own run, so the curves of the other modes in the file are kept.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { plot } from './plot.ts'

interface Drain {
  due: number
  curve: [second: number, left: number][]
}

const names: Record<string, string> = {
  redis: 'Redis',
  postgres: 'PostgreSQL',
  textbook: 'textbook'
}

export async function drawDrain(folder: string, mode: string, drain: Drain): Promise<void> {
  mkdirSync(folder, { recursive: true })
  const file = join(folder, 'drain.json')
  const drains = { ...read(file), [mode]: drain }
  writeFileSync(file, `${JSON.stringify(drains)}\n`)
  const svg = await plot({
    title: 'A backlog drains: Ackbox on Redis, on PostgreSQL only, and the textbook service',
    // Backlogs of different sizes in one plot: each in percent, and its time scaled to a million deliveries.
    x: 'seconds for each million that were due',
    y: 'deliveries left, %',
    series: Object.keys(names).flatMap(name => {
      const drained = drains[name]
      if (!drained) return []
      return [
        {
          name: `${names[name]}, ${drained.due / 1000}k due`,
          points: drained.curve.map(([second, left]): [number, number] => [
            (second * 1e6) / drained.due,
            (left * 100) / drained.due
          ])
        }
      ]
    })
  })
  writeFileSync(join(folder, 'drain.svg'), svg)
}

function read(file: string): Record<string, Drain> {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as Record<string, Drain>
  } catch {
    return {} // no curve is drawn yet
  }
}
