// CPU time of processes and their descendants, from /proc.
import { readdirSync, readFileSync } from 'node:fs'

interface Times {
  parent: number
  ms: number
}

/** Ms of CPU used so far by these processes and their descendants, including those that have ended. */
export function cpuMs(roots: number[]): number {
  const all = new Map<number, Times>()
  for (const name of readdirSync('/proc')) {
    const times = /^\d+$/.test(name) ? read(name) : undefined
    if (times !== undefined) all.set(Number(name), times)
  }
  const belongs = (pid: number): boolean => {
    const times = all.get(pid)
    return roots.includes(pid) || (times !== undefined && times.parent > 1 && belongs(times.parent))
  }
  return [...all].reduce((sum, [pid, times]) => sum + (belongs(pid) ? times.ms : 0), 0)
}

/** Fields of proc(5) after the name, which may hold blanks: ppid is 4th, utime stime cutime cstime 14th to 17th. */
function read(pid: string): Times | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0)
    return { parent: Number(fields[1]), ms: ticks * 10 } // a tick is 10 ms on every Linux that Node runs on
  } catch {
    return undefined // it has ended since the folder was read
  }
}
