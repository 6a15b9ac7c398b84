// ackbox generate [-- --check]: prints what is generated and committed, or compares it with what is there.
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { parseArgs } from 'node:util'
import { openapiJson } from '../api/openapi.ts'
import { isClone, packageRoot } from '../runtime/package.ts'
import { printConfigDoc, printEnvExample } from '../service/settings.ts'
import { printStates } from '../domain/transitions.ts'

export const help = `npm run generate            writes docs/config.md, docs/states.md, .env.example, openapi/openapi.json
npm run generate -- --check says which of them are out of date, and exits 1 if any is`

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({ args, options: { check: { type: 'boolean' } } })
  if (!isClone) throw new Error('generate writes the pages of a clone of Ackbox, and this is none')
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
    console.error(`out of date: ${stale.join(', ')}; run \`npm run generate\` and commit what changed`)
    process.exitCode = 1
  }
}
