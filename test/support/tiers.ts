// Which tier a test file belongs to: what it starts decides, and its imports say what it starts. What takes long says so itself.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'

/** unit: no server. db: the tests' PostgreSQL, or a Redis. system: processes of its own. long: all of test/long, and what takes 20 s or more. */
export const tierNames = ['unit', 'db', 'system', 'long'] as const
export type Tier = (typeof tierNames)[number]

export interface TestFile {
  /** From the root, as compiled. */
  compiled: string
  /** From the root, as written: what people type. */
  source: string
  tier: Tier
}

/** Before the imports of a file that takes 20 s or more in `npm test`. */
const takesLong = /^\/\/ Takes long\b/m
/** These need what not every machine has, and have a script each. */
const elsewhere = /^test\/(?:interop|package|image|schemathesis)\//
const servers = /^test\/support\/(?:postgres|redis)\.js$/
const programs = /^(?:node:child_process|src\/embedded\/postmaster\.js|test\/support\/own-postgres\.js)$/
/** Of test/support/service.ts, what starts a process; the rest of it only asks. */
const starts = /\b(?:start|launch)\b/

interface Import {
  names: string
  from: string
}

/** Every test file below the folder of compiled files; not what is left there of a source that is gone. */
export function testFiles(dist: string): TestFile[] {
  return readdirSync(path.join(dist, 'test'), { recursive: true, encoding: 'utf8' })
    .map(name => path.posix.join('test', name.replaceAll(path.sep, '/')))
    .filter(name => name.endsWith('.test.js') && !elsewhere.test(name))
    .filter(name => existsSync(path.join(dist, '..', name.replace(/js$/, 'ts'))))
    .toSorted()
    .map(name => ({
      compiled: path.posix.join('dist', name),
      source: name.replace(/js$/, 'ts'),
      tier: isLong(dist, name) ? 'long' : tierOf(dist, name)
    }))
}

/** As written: what is compiled has lost some of its comments. */
function isLong(dist: string, name: string): boolean {
  if (name.startsWith('test/long/')) return true
  const text = readFileSync(path.join(dist, '..', name.replace(/js$/, 'ts')), 'utf8')
  return takesLong.test(text.slice(0, text.search(/^import /m)))
}

function tierOf(dist: string, file: string): Tier {
  const seen = new Set([file])
  let tier: Tier = 'unit'
  for (const one of seen) {
    for (const { names, from } of importsOf(dist, one)) {
      if (programs.test(from)) return 'system'
      if (from === 'test/support/service.js') {
        if (starts.test(names)) return 'system'
      } else if (servers.test(from)) tier = 'db'
      else if (from.startsWith('test/')) seen.add(from)
    }
  }
  return tier
}

function importsOf(dist: string, file: string): Import[] {
  const text = readFileSync(path.join(dist, file), 'utf8')
  const found = [
    ...text.matchAll(/^(?:import|export) ([^'"]*?)\bfrom '([^']+)'/gm),
    ...text.matchAll(/(\bimport\()'([^']+)'\)/g)
  ]
  return found.map(([, names = '', from = '']) => ({
    names,
    from: from.startsWith('.') ? path.posix.join(path.posix.dirname(file), from) : from
  }))
}
