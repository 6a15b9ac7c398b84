// What the benchmarks with a command of their own have in common: options in, ground, one report out.
import { availableParallelism } from 'node:os'
import { prepare, type Ground } from './ground.ts'

/** Ends the process, with a line that says which option is wrong. */
export function amount(option: string, text: string): number {
  const value = Number(text)
  if (Number.isInteger(value) && value > 0) return value
  console.error(`--${option} takes a positive whole number, not ${JSON.stringify(text)}; see --help`)
  process.exit(2)
}

export function choice<const T extends string>(option: string, text: string, choices: readonly T[]): T {
  const chosen = choices.find(one => one === text)
  if (chosen !== undefined) return chosen
  console.error(`--${option} takes one of ${choices.join(', ')}, not ${JSON.stringify(text)}; see --help`)
  process.exit(2)
}

/** Prints what `work` reports. What was lost or refused fails it; interrupted, it clears everything away all the same. */
export async function onGround<Report extends { lost: number; refused: number }>(
  work: (ground: Ground, signal: AbortSignal) => Promise<Report>
): Promise<void> {
  const interrupt = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => interrupt.abort(signal))
  let ground: Ground | undefined
  try {
    ground = await prepare(interrupt.signal)
    const report = await work(ground, interrupt.signal)
    console.log(JSON.stringify({ ...report, cores: availableParallelism(), node: process.version }))
    if (report.lost === 0 && report.refused === 0) return
    console.error('tasks were lost or refused: these numbers are worth nothing')
    process.exitCode = 1
  } catch (err) {
    if (!interrupt.signal.aborted) throw err
    console.error('interrupted')
    process.exitCode = interrupt.signal.reason === 'SIGINT' ? 130 : 143
  } finally {
    await ground?.close()
  }
}

export const round = (value: number, digits = 0): number => Number(value.toFixed(digits))
