// Memory of processes, from /proc.
import { readdirSync, readFileSync } from 'node:fs'

/** MB that this process and all its descendants use now (PSS): shared memory, such as PostgreSQL's buffers, counts once. */
export function memoryMb(root: number): number {
  const parents = new Map<number, number>()
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue
    const stat = textOf(`/proc/${name}/stat`)
    parents.set(Number(name), Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]))
  }
  const belongs = (pid: number): boolean => pid === root || (pid > 1 && belongs(parents.get(pid) ?? 0))
  let kB = 0
  for (const pid of parents.keys()) if (belongs(pid)) kB += shareOf(pid)
  return kB / 1024
}

const shareOf = (pid: number): number =>
  Number(/^Pss: +(\d+) kB$/m.exec(textOf(`/proc/${pid}/smaps_rollup`))?.[1] ?? 0)

/** Peak MB of this process alone (VmHWM), including shared memory. A memory limit has to allow for it. */
export const peakMb = (pid: number): number =>
  Number(/^VmHWM:\s+(\d+) kB$/m.exec(textOf(`/proc/${pid}/status`))?.[1] ?? 0) / 1024

/** Empty for a process that has ended since the folder was read. */
function textOf(file: string): string {
  try {
    return readFileSync(file, 'latin1')
  } catch {
    return ''
  }
}

/** Least squares over the second half: its mean, and its rise from start to end. */
export function secondHalf(values: readonly number[]): { mean: number; rise: number } {
  const half = values.slice(Math.floor(values.length / 2))
  const n = half.length
  const mean = half.reduce((sum, value) => sum + value, 0) / n
  const middle = (n - 1) / 2
  let above = 0
  let below = 0
  half.forEach((value, i) => {
    above += (i - middle) * (value - mean)
    below += (i - middle) ** 2
  })
  return { mean, rise: below === 0 ? 0 : (above / below) * (n - 1) }
}
