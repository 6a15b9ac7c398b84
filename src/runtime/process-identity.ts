// Identifies this process, so that another process on this machine can find out whether it has ended.
import { readFileSync, readlinkSync } from 'node:fs'
import { hostname } from 'node:os'

const statOf = (pid: number | 'self'): string[] | undefined => {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    // The fields after the name of the program, which may contain any character: the state, …, and as the 20th the start time.
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  } catch {
    return undefined
  }
}

/** Processes with the same place use the same process ids: same host, same boot, same namespace, same user. */
function placeOf(): string | undefined {
  try {
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
    return [hostname(), boot, readlinkSync('/proc/self/ns/pid'), process.getuid?.() ?? ''].join(' ')
  } catch {
    return undefined
  }
}

/** Place, process id and start time, separated by spaces. null where they cannot be read, as outside of Linux. */
export function processIdentity(): string | null {
  const place = placeOf()
  const started = statOf('self')?.[19]
  return place === undefined || started === undefined ? null : `${place} ${process.pid} ${started}`
}

/** True if the process certainly ran on this machine and has ended. False for a stopped process, and for a process elsewhere. */
export function hasEnded(identity: string | null): boolean {
  const place = placeOf()
  if (identity === null || place === undefined || !identity.startsWith(`${place} `)) return false
  const [pid, started] = identity.slice(place.length + 1).split(' ')
  const stat = statOf(Number(pid))
  // A zombie only waits for its parent.
  return stat === undefined || stat[19] !== started || stat[0] === 'Z' || stat[0] === 'X'
}
