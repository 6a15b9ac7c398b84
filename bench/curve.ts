// The picture of the drain. Each mode is measured by a run of its own, so what others have left there stays.
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
    // Backlogs of different sizes in one picture: each in percent, and its time as if it were a million.
    x: 'seconds for each million that were due',
    y: 'deliveries left, %',
    series: Object.keys(names).flatMap(name => {
      const one = drains[name]
      if (!one) return []
      return [
        {
          name: `${names[name]}, ${one.due / 1000}k due`,
          points: one.curve.map(([second, left]): [number, number] => [
            (second * 1e6) / one.due,
            (left * 100) / one.due
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
    return {} // the first to be drawn
  }
}
