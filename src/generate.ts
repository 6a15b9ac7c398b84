// npm run generate [-- --check]: prints what is generated and committed, or compares it with what is there.
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { parseArgs } from 'node:util'
import { openapiJson } from './api/openapi.ts'
import { printConfigDoc, printEnvExample } from './settings.ts'
import { printStates } from './task/states.ts'

const { values } = parseArgs({
  options: { check: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } }
})
if (values.help) {
  console.log(
    'npm run generate            writes docs/config.md, docs/states.md, .env.example, openapi/openapi.json'
  )
  console.log('npm run generate -- --check says which of them are out of date, and exits 1 if any is')
  process.exit(0)
}

const root = process.cwd() // npm runs scripts in the folder of package.json
const files: [path: string, text: string][] = [
  ['docs/config.md', printConfigDoc()],
  ['.env.example', printEnvExample()],
  ['docs/states.md', printStates()],
  ['openapi/openapi.json', await openapiJson()]
]

const stale: string[] = []
for (const [path, text] of files) {
  const there = await readFile(join(root, path), 'utf8').catch(() => undefined)
  if (there === text) continue
  stale.push(path)
  if (values.check) continue
  await mkdir(dirname(join(root, path)), { recursive: true })
  await writeFile(join(root, path), text)
  console.log(`wrote ${path}`)
}
if (stale.length === 0) console.log('generated files are up to date')
else if (values.check) {
  console.error(`out of date: ${stale.join(', ')}; run \`npm run generate\` and commit what changed`)
  process.exitCode = 1
}
