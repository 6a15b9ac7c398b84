// The tier of a test file depends on the servers and processes that it starts. Its imports show them. A long file has a comment.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'

/**
 * unit: no server. db: the tests' PostgreSQL, or a Redis. system: processes of its own. long: test/long, and files of 15 s or more.
 * interop: servers that not every machine has; test/interop/run.ts runs them.
 */
export const tierNames = ['unit', 'db', 'system', 'long', 'interop'] as const
export type Tier = (typeof tierNames)[number]

export interface TestFile {
  /** The path of the compiled file, from the root. */
  compiled: string
  /** The path of the source file, from the root. It is the name in arguments and output. */
  source: string
  tier: Tier
}

/** The comment before the imports of a file that takes 15 s or more in `npm test`. */
const takesLong = /^\/\/ Takes long\b/m
/** These folders need programs that not every machine has. Each has its own script. */
const elsewhere = /^test\/(?:package|image|schemathesis)\//
const servers = /^test\/support\/(?:postgres|redis)\.js$/
const programs = /^(?:node:child_process|src\/embedded\/postmaster\.js|test\/support\/own-postgres\.js)$/
/** The exports of test/support/service.ts that start a process. */
const starts = /\b(?:start|launch)\b/

interface Import {
  names: string
  from: string
}

/** Every test file below the folder of compiled files, except compiled files whose source is gone. */
export function testFiles(dist: string): TestFile[] {
  return readdirSync(path.join(dist, 'test'), { recursive: true, encoding: 'utf8' })
    .map(name => path.posix.join('test', name.replaceAll(path.sep, '/')))
    .filter(name => name.endsWith('.test.js') && !elsewhere.test(name))
    .filter(name => existsSync(path.join(dist, '..', name.replace(/js$/, 'ts'))))
    .toSorted()
    .map(name => ({
      compiled: path.posix.join('dist', name),
      source: name.replace(/js$/, 'ts'),
      tier: tierOf(dist, name)
    }))
}

/** Reads the source: the compiled file has lost some of its comments. */
function isLong(dist: string, name: string): boolean {
  if (name.startsWith('test/long/')) return true
  const text = readFileSync(path.join(dist, '..', name.replace(/js$/, 'ts')), 'utf8')
  return takesLong.test(text.slice(0, text.search(/^import /m)))
}

function tierOf(dist: string, file: string): Tier {
  if (file.startsWith('test/interop/')) return 'interop'
  if (isLong(dist, file)) return 'long'
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
