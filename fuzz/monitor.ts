// Runs in the process that is fuzzed: measures how long its event loop was blocked.
import { openSync, readSync } from 'node:fs'

const everyMs = 10

export interface Monitor {
  /** The most ms of CPU time between two turns of the event loop, since the last call. */
  longestBlockMs(): number
  /** Turns so far: time that passes only while the process runs. */
  readonly turns: number
}

export function monitor(): Monitor {
  const cpuMs = cpuClock()
  let longest = 0
  let turns = 0
  let wall = performance.now()
  let cpu = cpuMs()
  const look = (): void => {
    const now = performance.now()
    const used = cpuMs()
    // Time that other processes took is no block. Only the CPU time of this thread counts.
    longest = Math.max(longest, Math.min(now - wall - everyMs, used - cpu))
    wall = now
    cpu = used
  }
  setInterval(() => {
    turns++
    look()
  }, everyMs).unref()
  return {
    get turns() {
      return turns
    },
    longestBlockMs() {
      look()
      const worst = longest
      longest = 0
      return worst
    }
  }
}

/** CPU time of the main thread. If it is not available, that of the whole process. */
function cpuClock(): () => number {
  try {
    const file = openSync('/proc/self/schedstat', 'r')
    const buffer = Buffer.alloc(64)
    const read = (): number => {
      const length = readSync(file, buffer, 0, 64, 0)
      return Number.parseInt(buffer.toString('latin1', 0, length), 10) / 1e6
    }
    if (read() > 0) return read
  } catch {
    // no such file: no Linux
  }
  return () => {
    const { user, system } = process.cpuUsage()
    return (user + system) / 1_000
  }
}
