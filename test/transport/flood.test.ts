// What a broker that floods costs: measured on a process of its own, which must be there afterwards.
import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import type { Asked, Told } from './flooded.ts'
import { floods } from './floods.ts'
import { scriptedServer } from './scripted-server.ts'

t.setTimeout(600_000)

const timeoutMs = 1_500
// What was dropped waits for the collector: half of it is the loopback's speed, and a leak is a gigabyte.
const mostMb = 128
const mostBlockMs = 200
const isLinux = process.platform === 'linux'

for (const [reader, name, script] of floods) {
  t.test(`${reader}: ${name} costs less than ${mostMb} MB and ends no process`, async t => {
    const server = await scriptedServer(t, script)
    const child = await started(t, reader, server.port)
    const idle = memory(child.process, 'VmRSS')
    const told = await child.ask({ send: timeoutMs })
    if (!('outcome' in told)) throw new Error('no outcome')
    if (!reader.startsWith('reply')) t.match(told.outcome, { kind: /failed|delivered/ })
    t.ok(told.blockMs < mostBlockMs, `blocked for ${Math.round(told.blockMs)} ms`)
    if (isLinux) {
      const grown = memory(child.process, 'VmHWM') - idle
      t.ok(grown < mostMb, `${Math.round(grown)} MB above idle`)
    }
    t.equal(child.process.exitCode, null, 'the process lives')
    t.equal(child.printed(), '', 'and nothing was printed')
  })
}

async function started(t: Test, reader: string, port: number) {
  const child = fork(new URL('./flooded.js', import.meta.url), [reader, `127.0.0.1:${port}`], {
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    // Threads that collect garbage come late beside a neighbour; then the measure would be the neighbour's.
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
  // The highest from now on
  if (isLinux) writeFileSync(`/proc/${child.pid}/clear_refs`, '5')
  return {
    process: child,
    printed: () => printed,
    async ask(asked: Asked): Promise<Told> {
      child.send(asked)
      return next()
    }
  }
}

function memory(child: ChildProcess, line: 'VmRSS' | 'VmHWM'): number {
  const status = isLinux ? readFileSync(`/proc/${child.pid}/status`, 'utf8') : ''
  return Number(new RegExp(`${line}:\\s+(\\d+)`).exec(status)?.[1] ?? 0) / 1_024
}
