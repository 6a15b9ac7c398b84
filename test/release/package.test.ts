import { execFile } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { filesOf, unexpected } from '../package/contents.ts'

t.test('npm pack takes what a package needs, and no test, benchmark or secret', async t => {
  const root = path.resolve(import.meta.dirname, '../../..')
  const { stdout } = await promisify(execFile)('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], {
    cwd: root,
    maxBuffer: 1e8
  })
  const files = filesOf(stdout)
  t.ok(files.length > 100)
  // The compilation for the tests makes source maps too. The build of a package makes none.
  t.same(unexpected(files.filter(file => !file.endsWith('.js.map'))), [])
  for (const file of ['package.json', 'LICENSE', 'dist/src/cli/ackbox.js', 'openapi/openapi.json'])
    t.ok(files.includes(file), file)
  t.same(
    unexpected([
      'dist/test/x.js',
      'bench/main.ts',
      '.env',
      'dist/src/a.js.map',
      'src/main.ts',
      'dist/handlers/own.js'
    ]).length,
    6
  )
})
