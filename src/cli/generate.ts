// ackbox generate [--check]: writes the generated files, or compares them with the committed ones.
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { openapiJson } from '../api/openapi.ts'
import { readArguments, UsageError } from './arguments.ts'
import { isClone, packageRoot } from '../runtime/package.ts'
import { printConfigDoc, printEnvExample } from '../service/settings.ts'
import { printStates } from '../domain/states-page.ts'

export const help = `npm run generate            writes docs/config.md, docs/states.md, .env.example, openapi/openapi.json
npm run generate -- --check lists the outdated ones, and writes none

Exit: 0 up to date, or written · 1 --check found outdated ones, or an error, which is printed`

export async function run(args: string[]): Promise<void> {
  const { values } = readArguments({ args, options: { check: { type: 'boolean' } } })
  if (!isClone) throw new UsageError('generate works only in a clone of Ackbox')
  const files: [path: string, text: string][] = [
    ['docs/config.md', printConfigDoc()],
    ['.env.example', printEnvExample()],
    ['docs/states.md', printStates()],
    ['openapi/openapi.json', await openapiJson()]
  ]

  const stale: string[] = []
  for (const [path, text] of files) {
    const there = await readFile(join(packageRoot, path), 'utf8').catch(() => undefined)
    if (there === text) continue
    stale.push(path)
    if (values.check) continue
    await mkdir(dirname(join(packageRoot, path)), { recursive: true })
    await writeFile(join(packageRoot, path), text)
    console.log(`wrote ${path}`)
  }
  if (stale.length === 0) console.log('generated files are up to date')
  else if (values.check) {
    console.error(`out of date: ${stale.join(', ')}. Run \`npm run generate\` and commit the changes`)
    process.exitCode = 1
  }
}
