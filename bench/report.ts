// What a benchmark says in the end.
import { availableParallelism } from 'node:os'

/** What is no number stays none: JSON makes null of it. */
export const round = (value: number, digits = 0): number => Number(value.toFixed(digits))

/** Prints the line of a result. What was lost or refused fails the benchmark: false. */
export function report(line: { lost: number; refused: number; [name: string]: unknown }): boolean {
  console.log(JSON.stringify({ ...line, cores: availableParallelism(), node: process.version }))
  if (line.lost === 0 && line.refused === 0) return true
  console.error('tasks were lost or refused: these numbers are worth nothing')
  process.exitCode = 1
  return false
}
