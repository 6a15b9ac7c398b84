// Whoever runs the tests sees which files are slow. Nothing fails because a machine is busy.
import { execFileSync } from 'node:child_process'
import path from 'node:path'
import t from 'tap'
import { only } from './support/only.ts'
import { slowFiles } from './support/verdict.ts'

t.test('files over 30 s are listed after a run, the slowest first', async t => {
  const run = [
    { source: 'test/quick.test.ts', seconds: 30 },
    { source: 'test/slow.test.ts', seconds: 31.25 },
    { source: 'test/slowest.test.ts', seconds: 120 }
  ]
  t.same(slowFiles(run), [
    'Slow files, more than 30 s each:',
    '   120.0 s  test/slowest.test.ts',
    '    31.3 s  test/slow.test.ts'
  ])
  t.same(slowFiles(run.slice(0, 1)), [], 'no list without slow files')
})

t.test('npm test -- --help says so', async t => {
  const help = execFileSync(process.execPath, [path.join(import.meta.dirname, 'support/run.js'), '--help'], {
    encoding: 'utf8'
  })
  t.match(help, /more than 30 s are listed as Slow files/)
})

t.test('a pattern of only() fails on an element too many, too few or other', async t => {
  t.match([{ a: 1, b: 2 }], only({ a: 1 }))
  t.match({ rows: [] }, { rows: only() })
  for (const found of [[{ a: 1 }, { a: 1 }], [], [{ a: 2 }], undefined]) t.notMatch(found, only({ a: 1 }))
})
