// The report at the end of a benchmark.
import { availableParallelism } from 'node:os'

/** NaN stays NaN, which JSON writes as null. */
export const round = (value: number, digits = 0): number => Number(value.toFixed(digits))

/** The exit code if tasks were refused but none was lost: the numbers are worth nothing. */
export const refusedExitCode = 3

/** Prints the line of a result. Lost or refused tasks fail the benchmark: it returns false. */
export function report(line: { lost: number; refused: number; [name: string]: unknown }): boolean {
  console.log(JSON.stringify({ ...line, cores: availableParallelism(), node: process.version }))
  if (line.lost === 0 && line.refused === 0) return true
  console.error('tasks were lost or refused: these numbers are worth nothing')
  process.exitCode = line.lost > 0 ? 1 : (process.exitCode ?? refusedExitCode)
  return false
}
