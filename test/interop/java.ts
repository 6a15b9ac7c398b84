import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import { built } from './server.ts'

const project = 'examples/java'

const goals = ['compile', 'dependency:copy-dependencies', '-DincludeScope=runtime']

export const buildExamples = (): Promise<void> => built('java', 'mvn', '-B', '-q', '-f', project, ...goals)

/** Builds the Java examples and runs one of them until the test ends. Resolves once it prints that it is listening. */
export async function javaExample(
  t: Test,
  main: string,
  env: Record<string, string>
): Promise<{ said(): string; until(is: () => boolean): Promise<void> }> {
  await buildExamples()
  const home = mkdtempSync(join(tmpdir(), 'ackbox-java-'))
  const classes = `${project}/target/classes:${project}/target/dependency/*`
  // RocketMQ's client writes its log into the home folder by default.
  const java = spawn(
    'java',
    ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', `-Drocketmq.log.root=${home}`, '-cp', classes, main],
    {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe']
    }
  )
  let said = ''
  for (const stream of [java.stdout, java.stderr])
    stream.on('data', (chunk: Buffer) => {
      said += chunk.toString()
    })
  t.teardown(async () => {
    const gone = once(java, 'exit')
    if (java.kill('SIGKILL')) await gone
    rmSync(home, { recursive: true, force: true })
  })
  const until = async (is: () => boolean): Promise<void> => {
    // Long, as it only ends a hang.
    for (const end = Date.now() + 300_000; !is(); await sleep(50))
      if (Date.now() > end || java.exitCode !== null) throw new Error(said.slice(-3_000))
  }
  await until(() => said.includes('listening'))
  return { said: () => said, until }
}
