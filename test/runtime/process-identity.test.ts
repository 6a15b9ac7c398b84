import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import t from 'tap'
import { hasEnded, processIdentity } from '../../src/runtime/process-identity.ts'

const mine = processIdentity()
const place = (mine ?? '').split(' ').slice(0, -2).join(' ')
// It needs /proc. Without it no process is ever reported as ended.
const skip = mine === null && 'no /proc'

t.test('a process that runs has not ended, nor has one that is stopped', { skip }, async t => {
  t.notOk(hasEnded(mine))
  const child = spawn('sleep', ['600'])
  t.teardown(() => child.kill('SIGKILL'))
  const theirs = identityOf(child.pid ?? 0)
  child.kill('SIGSTOP')
  t.notOk(hasEnded(theirs))
})

t.test('one that was killed has ended, and so has one whose number another has by now', { skip }, async t => {
  const child = spawn('sleep', ['600'])
  const theirs = identityOf(child.pid ?? 0)
  child.kill('SIGKILL')
  await once(child, 'exit')
  t.ok(hasEnded(theirs))
  t.ok(hasEnded(`${place} ${process.pid} 1`), 'this number, started at another time')
})

t.test('of a process of another machine, container or user nothing is known', { skip }, async t => {
  t.notOk(hasEnded(null))
  t.notOk(hasEnded('elsewhere 1 1'))
  for (const [at, word] of place.split(' ').entries()) {
    const other = place.split(' ').with(at, `${word}0`).join(' ')
    t.notOk(hasEnded(`${other} 4194304 1`), other)
  }
  t.ok(hasEnded(`${place} 4194304 1`), 'the same of this place has ended')
})

function identityOf(pid: number): string {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  return `${place} ${pid} ${stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]}`
}
