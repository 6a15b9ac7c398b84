// Measures how much CPU a run gets: a separate process repeats the same small piece of work. The promised times assume
// a machine that works. While other programs take its processors, the judge counts less time.
import { fork } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { CpuSample } from './history.ts'

export interface CpuProbe {
  samples: CpuSample[]
  stop(): Promise<unknown>
}

const everyMs = 250
/** About 10 ms of CPU, which is more than a scheduler gives at once while others wait. */
const bytes = 16 << 20
const file = fileURLToPath(import.meta.url)

export function startCpuProbe(): CpuProbe {
  const child = fork(file, ['probe'], { stdio: ['ignore', 2, 2, 'ipc'] })
  const samples: CpuSample[] = []
  child.on('message', (sample: CpuSample) => samples.push(sample))
  const gone = once(child, 'exit')
  return {
    samples,
    stop() {
      child.kill('SIGKILL')
      return gone
    }
  }
}

if (process.argv[1] === file && process.argv[2] === 'probe') {
  const text = Buffer.alloc(bytes)
  setInterval(() => {
    const from = performance.now()
    const before = process.cpuUsage()
    createHash('sha256').update(text).digest()
    const { user, system } = process.cpuUsage(before)
    const sample: CpuSample = {
      at: Date.now(),
      ms: performance.now() - from,
      workedMs: (user + system) / 1_000
    }
    process.send?.(sample)
  }, everyMs)
  // Ctrl-C in a terminal reaches the whole group. The run ends this process.
  process.on('SIGINT', () => {})
  process.on('disconnect', () => process.exit(0))
}
