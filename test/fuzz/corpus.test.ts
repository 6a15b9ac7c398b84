// For each reader with a folder: every input that once failed, and some valid inputs.
// Takes long: npm run test:long.
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import type { Reader } from '../../fuzz/reader.ts'

t.setTimeout(2_400_000)

const corpus = 'test/fuzz/corpus' // tap runs the tests in the folder of package.json
const folders = readdirSync(corpus)

/** The inputs of a folder. A file has the same content as a printed finding. */
const inputsOf = (name: string): unknown[] =>
  readdirSync(path.join(corpus, name)).map(
    file => (JSON.parse(readFileSync(path.join(corpus, name, file), 'utf8')) as { input: unknown }).input
  )

for (const name of folders) {
  t.test(`${name}: what once went wrong, and what is valid, is read without a finding`, async t => {
    const file = new URL(`../../fuzz/readers/${name}.js`, import.meta.url)
    const { reader } = (await import(file.href)) as { reader: Reader }
    const inputs = inputsOf(name)
    t.match(await reader.replay(inputs), { cases: inputs.length })
  })
}

t.test('each folder of the corpus belongs to a reader, and holds something', async t => {
  const readers = readdirSync('fuzz/readers').map(file => path.parse(file).name)
  t.same(
    folders.filter(name => !readers.includes(name) || inputsOf(name).length === 0),
    []
  )
})
