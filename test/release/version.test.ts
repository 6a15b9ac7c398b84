import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { version } from '../../src/runtime/package.ts'

const root = path.resolve(import.meta.dirname, '../../..')
const read = (file: string): string => readFileSync(path.join(root, file), 'utf8')

t.test('the version is written in package.json, and nowhere else by hand', async t => {
  const lock = JSON.parse(read('package-lock.json')) as { version: string }
  t.equal(lock.version, version, 'package-lock.json: npm install')
  const api = JSON.parse(read('openapi/openapi.json')) as { info: { version: string } }
  t.equal(api.info.version, version, 'openapi/openapi.json: npm run generate')
  const examples = [...read('openapi/openapi.json').matchAll(/"version": "(.*?)"/g)].slice(1)
  t.ok(examples.length > 0)
  t.same([...new Set(examples.map(([, each]) => each))], [version], 'its examples')
  const shown = execFileSync(process.execPath, [path.join(root, 'dist/src/cli/ackbox.js'), '--version'], {
    encoding: 'utf8'
  })
  t.equal(shown.trim(), version)
  for (const pom of [
    'sdk/pom.xml',
    'sdk/java/pom.xml',
    'examples/producers/java/pom.xml',
    'examples/receivers/java/pom.xml',
    'docs/sdk-java.md',
    'docs/zh/sdk-java.md'
  ])
    t.equal(/<artifactId>ackbox-.*?<\/artifactId>\s*<version>(.*?)</.exec(read(pom))?.[1], version, pom)
  const files = execFileSync(
    'git',
    ['ls-files', '*.md', '*.ts', '*.mjs', '*.yml', 'Dockerfile', 'examples'],
    {
      cwd: root,
      encoding: 'utf8'
    }
  )
  const byHand = new RegExp(
    `\\bversion: ['"\`]\\d+\\.\\d+\\.\\d+|['"\`]${version.replaceAll('.', '\\.')}['"\`]`
  )
  t.same(
    files.split('\n').filter(file => file.startsWith('src/') && byHand.test(read(file))),
    [],
    'src has it from src/runtime/package.ts'
  )
  const named = /\backbox[@:-]v?\d+\.\d+\.\d+(?!\.\d|\d)/
  t.same(
    files
      .trim()
      .split('\n')
      .filter(file => named.test(read(file))),
    [],
    'no page, program or image names it'
  )
})
