// Which process this is, so that another one on this machine can tell whether it has ended.
import { readFileSync, readlinkSync } from 'node:fs'
import { hostname } from 'node:os'

const statOf = (pid: number | 'self'): string[] | undefined => {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    // After the name of the program, which may hold anything: the state, …, and as the 20th the time it was started at.
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  } catch {
    return undefined
  }
}

/** Processes of which this is the same see each other by the same numbers: same boot, same namespace, same user. */
function placeOf(): string | undefined {
  try {
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
    return [hostname(), boot, readlinkSync('/proc/self/ns/pid'), process.getuid?.() ?? ''].join(' ')
  } catch {
    return undefined
  }
}

/** Place, process id and start time, by spaces. null where nobody can tell, as outside of Linux. */
export function processIdentity(): string | null {
  const place = placeOf()
  const started = statOf('self')?.[19]
  return place === undefined || started === undefined ? null : `${place} ${process.pid} ${started}`
}

/** Certain: it ran on this machine, and has ended. One that is stopped has not; of one elsewhere nothing is known. */
export function hasEnded(identity: string | null): boolean {
  const place = placeOf()
  if (identity === null || place === undefined || !identity.startsWith(`${place} `)) return false
  const [pid, started] = identity.slice(place.length + 1).split(' ')
  const stat = statOf(Number(pid))
  // A zombie only waits for its parent.
  return stat === undefined || stat[19] !== started || stat[0] === 'Z' || stat[0] === 'X'
}
