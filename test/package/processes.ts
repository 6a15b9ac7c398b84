// The processes that a program started, down to the last grandchild.
import { readdirSync, readFileSync } from 'node:fs'

/** The pids of all descendants of a process, read from /proc. */
export function descendants(pid: number): number[] {
  const children = new Map<number, number[]>()
  for (const each of readdirSync('/proc').filter(name => /^\d+$/.test(name))) {
    const parent = parentOf(Number(each))
    if (parent !== undefined) children.set(parent, [...(children.get(parent) ?? []), Number(each)])
  }
  const below = (of: number): number[] => (children.get(of) ?? []).flatMap(each => [each, ...below(each)])
  return below(pid)
}

function parentOf(pid: number): number | undefined {
  try {
    const [, rest = ''] = /\)([^)]*)$/.exec(readFileSync(`/proc/${pid}/stat`, 'utf8')) ?? []
    return Number(rest.trim().split(' ')[1])
  } catch {
    return undefined // it has just ended
  }
}

export function isAlive(pid: number): boolean {
  try {
    return !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch {
    return false
  }
}
