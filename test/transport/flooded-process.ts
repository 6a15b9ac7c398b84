// Starts flooded.ts, and measures it from outside while it is flooded.
import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import type { Test } from 'tap'
import type { Asked, Told } from './flooded.ts'

// Dropped data waits for the garbage collector. Half of this limit depends on the speed of loopback; a leak is a gigabyte.
const mostMb = 128
const mostBlockMs = 200
const isLinux = process.platform === 'linux'

export interface Flooded {
  /** Sends, or reads, for this long. Fails the test if the cost is above the limits. */
  bears(ms: number): Promise<Extract<Told, { outcome: unknown }>>
}

export async function flooded(t: Test, reader: string, port: number): Promise<Flooded> {
  const child = fork(new URL('./flooded.js', import.meta.url), [reader, `127.0.0.1:${port}`], {
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    // Parallel threads of the garbage collector are late on a busy machine; then the test would measure its neighbour.
    execArgv: ['--single-threaded-gc']
  })
  let printed = ''
  child.stdout?.on('data', (text: Buffer) => (printed += text.toString().slice(0, 500)))
  child.stderr?.on('data', (text: Buffer) => (printed += text.toString().slice(0, 500)))
  t.teardown(() => child.kill('SIGKILL'))
  const next = async (): Promise<Told> => {
    const exited = once(child, 'exit').then(([code]) => {
      throw new Error(`the process ended with ${code}: ${printed.slice(0, 500)}`)
    })
    const [told] = (await Promise.race([once(child, 'message'), exited])) as [Told]
    return told
  }
  await next()
  // Resets the peak
  if (isLinux) writeFileSync(`/proc/${child.pid}/clear_refs`, '5')
  return {
    async bears(ms) {
      const idle = memory(child, 'VmRSS')
      const asked: Asked = { send: ms }
      child.send(asked)
      const told = await next()
      if (!('outcome' in told)) throw new Error('no outcome')
      t.ok(told.blockMs < mostBlockMs, `blocked for ${Math.round(told.blockMs)} ms`)
      if (isLinux) {
        const grown = memory(child, 'VmHWM') - idle
        t.ok(grown < mostMb, `${Math.round(grown)} MB above idle`)
      }
      t.equal(child.exitCode, null, 'the process lives')
      t.equal(printed, '', 'and nothing was printed')
      return told
    }
  }
}

function memory(child: ChildProcess, line: 'VmRSS' | 'VmHWM'): number {
  const status = isLinux ? readFileSync(`/proc/${child.pid}/status`, 'utf8') : ''
  return Number(new RegExp(`${line}:\\s+(\\d+)`).exec(status)?.[1] ?? 0) / 1_024
}
