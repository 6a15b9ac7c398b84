// npm run bench -- against COMMIT|FOLDER: a benchmark of this version and of another one, by turns on this machine, and their ratio.
import { execFile } from 'node:child_process'
import path from 'node:path'
import { parseArgs, promisify } from 'node:util'
import { otherClone } from '../chaos/other-build.ts'
import { median } from './median.ts'

const help = `npm run bench -- against COMMIT|FOLDER [--rounds N] [-- options of a benchmark]

Runs a benchmark of the other version and of this one, by turns, each with its own code, N times (5). Prints the median of each figure of both,
and this one's ratio to the other. A commit is packed, installed and compiled once.

  npm run bench -- against ad427f36 --rounds 10 -- --only ackbox-postgres
  npm run bench -- against ../other -- shapes`

const root = path.resolve(import.meta.dirname, '../..')
/** The figures that say something of a version: a machine's other figures are left out. */
const figures = [
  'tasksPerSecond',
  'cpuMsPerTask',
  'p50Ms',
  'p99Ms',
  'walBytesPerTask',
  'rssMb',
  'lost'
] as const
type Line = { bench: string } & Partial<Record<(typeof figures)[number], number | null>>

export async function main(args: string[]): Promise<void> {
  process.exitCode = await compare(args)
}

async function compare(asked: string[]): Promise<number> {
  const { values, positionals } = parseArgs({
    args: asked,
    allowPositionals: true,
    options: { rounds: { type: 'string' }, help: { type: 'boolean', short: 'h' } }
  })
  const [wanted, ...args] = positionals
  const rounds = Number(values.rounds ?? 5)
  if (values.help || wanted === undefined) {
    console.log(help)
    return values.help ? 0 : 2
  }
  if (!Number.isInteger(rounds) || rounds < 1) {
    console.error(`--rounds ${values.rounds} is no number of rounds`)
    return 2
  }
  const other = await otherClone(root, wanted, line => console.error(`bench: ${line}`))
  const found = { other: [] as Line[], this: [] as Line[] }
  for (let round = 1; round <= rounds; round++)
    // The first of a round has a cooler machine: each is first in every second round.
    for (const which of round % 2 === 1 ? (['other', 'this'] as const) : (['this', 'other'] as const)) {
      console.error(`bench: round ${round} of ${rounds}, ${which}`)
      found[which].push(...(await run(which === 'this' ? root : other, args)))
    }
  for (const bench of new Set(found.this.map(one => one.bench))) {
    const of = (lines: Line[], figure: (typeof figures)[number]): number[] =>
      lines.filter(one => one.bench === bench).flatMap(one => one[figure] ?? [])
    const compared = figures.flatMap(figure => {
      const [mine, others] = [of(found.this, figure), of(found.other, figure)]
      if (mine.length === 0 || others.length === 0) return []
      const [a, b] = [median(mine), median(others)]
      return [[figure, { this: a, other: b, ratio: b === 0 ? null : Math.round((a / b) * 1_000) / 1_000 }]]
    })
    console.log(JSON.stringify({ bench, rounds, ...Object.fromEntries(compared) }))
  }
  return 0
}

/** One round of the benchmark of this clone, by its own code. */
async function run(clone: string, args: readonly string[]): Promise<Line[]> {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [
      path.join(clone, 'dist/bench/main.js'),
      ...args,
      ...(args.includes('--rounds') ? [] : ['--rounds', '1'])
    ],
    { cwd: clone, maxBuffer: 2 ** 26 }
  )
  return stdout
    .split('\n')
    .filter(line => line.startsWith('{'))
    .map(line => JSON.parse(line) as Line)
    .filter(({ bench }) => typeof bench === 'string')
}
