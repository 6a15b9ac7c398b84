// A stop of `npm start` while it compiles.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { copyTree, plainEnv } from '../package/installed.ts'
import { descendants, isAlive } from '../package/processes.ts'
import { until } from '../support/until.ts'

t.setTimeout(900_000)

const commandOf = (pid: number): string => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8')
  } catch {
    return '' // it has just ended
  }
}

t.test('npm start that is told to end while it compiles leaves nothing behind', async t => {
  const clone = await copyTree(t)
  const ends: [what: string, tell: (pid: number) => void][] = [
    ['SIGTERM to npm alone', pid => process.kill(pid, 'SIGTERM')],
    ['Ctrl-C: SIGINT to npm and all below it', pid => process.kill(-pid, 'SIGINT')],
    ['SIGKILL to npm', pid => process.kill(pid, 'SIGKILL')]
  ]
  for (const [what, tell] of ends) {
    const npm = spawn('npm', ['start'], { cwd: clone, env: plainEnv(), detached: true, stdio: 'ignore' })
    const pid = npm.pid ?? 0
    let all: number[] = []
    t.teardown(() => {
      for (const each of [pid, ...all]) if (isAlive(each)) process.kill(each, 'SIGKILL')
    })
    await until('the compiler runs', () => {
      all = descendants(pid)
      return all.some(each => /\/lib\/tsc\0/.test(commandOf(each)))
    })
    const ended = once(npm, 'exit')
    tell(pid)
    await ended
    await until(`nothing is left after ${what}`, () => all.every(each => !isAlive(each)))
    t.notOk(
      existsSync(path.join(clone, 'dist/src/main.js')),
      `${what}: the compiler was stopped, and has not ended by itself`
    )
  }
})
