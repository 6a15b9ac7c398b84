// The lint rules of this project, on code that breaks them.
import { execFile } from 'node:child_process'
import { cpSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import t from 'tap'
import { folder } from '../support/service.ts'

const bad = {
  'String(err)': 'typescript(no-base-to-string)',
  '`failed: ${err}`': 'typescript(no-base-to-string)',
  'err instanceof Error': 'ackbox(no-raw-error)',
  '(err as Error).message': 'ackbox(no-raw-error)',
  '(err as NodeJS.ErrnoException).stack': 'ackbox(no-raw-error)'
}

t.test('code in src that reads a thrown value by itself is refused by the lint', async t => {
  const project = folder(t)
  mkdirSync(join(project, 'src'))
  cpSync('lint', join(project, 'lint'), { recursive: true })
  cpSync('tsconfig.json', join(project, 'tsconfig.json'))
  symlinkSync(resolve('node_modules'), join(project, 'node_modules'))
  cpSync('.oxlintrc.json', join(project, '.oxlintrc.json'))
  const lines = Object.keys(bad).map((code, n) => `export const f${n} = (err: unknown) => ${code}`)
  writeFileSync(join(project, 'src/bad.ts'), `${lines.join('\n')}\n`)
  const found = await new Promise<string>(done =>
    execFile(
      process.execPath,
      [resolve('node_modules/oxlint/bin/oxlint'), '--format', 'unix'],
      { cwd: project, env: { ...process.env, NODE_OPTIONS: '' } },
      (_err, stdout, stderr) => done(stdout + stderr)
    )
  )
  const lintLines = found.split('\n')
  for (const [n, [code, rule]] of Object.entries(bad).entries())
    t.ok(
      lintLines.some(line => line.startsWith(`src/bad.ts:${n + 1}:`) && line.includes(rule)),
      code
    )
})
