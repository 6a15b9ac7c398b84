// docs/promise.md names the tests that prove each promise. These tests exist, with exactly these titles.
import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { charges, producerCharges } from '../../chaos/judge/finding.ts'
import { profiles } from '../../chaos/options.ts'
import { page } from './markdown.ts'

const root = path.resolve(import.meta.dirname, '../../..')
const { text } = page(root, 'docs/promise.md')
const findings = page(root, 'SECURITY.md').text
const there = (file: string): boolean => existsSync(path.join(root, file))

const named = [...`${text}${findings}`.matchAll(/`([a-z0-9/-]+)` “([^”]+)”/g)].map(
  ([, file = '', title = '']) => ({
    file,
    title
  })
)

/** A shorter text beside the expressions of a template would be the title of nearly any test. */
const leastText = 10

/** The titles of the tests in a source, as patterns. An expression in a template matches any text. */
const titlesIn = (source: string): RegExp[] =>
  [...source.matchAll(/\bt\.test\(\s*(?:'([^'\n]+)'|"([^"\n]+)"|`([^`\n]+)`)/g)].flatMap(
    ([, single, double, template = '']) => {
      const plain = single ?? double
      const parts = plain === undefined ? template.split(/\$\{[^}]*\}/) : [plain]
      if (parts.join('').length < leastText) return []
      return new RegExp(`^${parts.map(part => part.replaceAll(/[^\w\s]/g, '\\$&')).join('.+')}$`)
    }
  )

/** The cells of each row of the table under this heading, without its head. */
function table(heading: string): string[][] {
  const section = text.split(/^## /m).find(part => part.startsWith(heading)) ?? ''
  const lines = section.split('\n').filter(line => line.startsWith('|'))
  return lines.slice(2).map(line => line.split(' | ').map(cell => cell.replaceAll(/^\|\s*|\s*\|$/g, '')))
}

t.test('every promise has a row, and every row a test', async t => {
  // The numbers of a table rise by one: a promise that is taken back or added in the middle shows.
  const sections = { 'The promises': ['I', 49], 'Before the 201': ['P', 9], 'In order': ['O', 3] } as const
  const more = {
    'At the receiver': ['R', 3],
    "In an operator's hands": ['H', 10],
    'Under attack': ['A', 13]
  } as const
  const tables = Object.entries({ ...sections, ...more }).map(([heading, [letter, least]]) => {
    const rows = table(heading)
    t.ok(rows.length >= least, `${heading} has ${rows.length} promises`)
    t.same(
      rows.map(([name]) => name),
      rows.map((_, n) => `${letter}${n + 1}`)
    )
    return rows
  })
  const classics = table('What the classic implementations got wrong')
  t.same(
    classics.map(([name]) => Number(name)),
    Array.from({ length: 23 }, (_, n) => n + 1)
  )
  const unshown = [...tables.flat(), ...classics].filter(cells => !cells.at(-1)?.includes('“'))
  t.same(unshown, [])
})

t.test('every finding of an attacker has the test that keeps it closed', async t => {
  const rows = findings.split('\n').filter(line => line.startsWith('| ') && !line.startsWith('| finding'))
  t.ok(rows.length >= 20, `${rows.length} findings`)
  t.same(
    rows.filter(row => !/“[^”]+” \|$/.test(row)),
    []
  )
})

t.test('every cell of the matrix has one of the answers, and every fault its test', async t => {
  const answers = new Set(['none', '503', 'kept', '+1', 'stale', 'again'])
  const rows = table('Faults × moments')
  t.equal(rows.length, 19)
  for (const [fault = '', ...cells] of rows) {
    t.equal(cells.length, 9, fault)
    t.same(
      cells.slice(0, 8).filter(cell => !answers.has(cell)),
      [],
      fault
    )
    t.match(cells[8], /“/, fault)
  }
})

t.test('only the title of a test counts, and one that says which test it is', async t => {
  const has = (source: string, title: string): boolean => titlesIn(source).some(each => each.test(title))
  t.ok(has("t.test('a kill loses nothing', async t => {})", 'a kill loses nothing'))
  t.ok(has('t.test(\n  `a kill of ${name} loses nothing`, async t => {})', 'a kill of Redis loses nothing'))
  t.notOk(has("const said = 'a kill loses nothing'", 'a kill loses nothing'))
  t.notOk(has('t.test(`${name}: ${place}`, async t => {})', 'a kill: loses nothing'))
})

t.test('every test it names is in the run, under the title it gives', async t => {
  t.ok(named.length > 100, `${named.length} are named`)
  const wrong = named.filter(({ file, title }) => {
    const source = `test/${file}.test.ts`
    return (
      !there(source) ||
      !there(`dist/test/${file}.test.js`) ||
      !titlesIn(readFileSync(path.join(root, source), 'utf8')).some(each => each.test(title))
    )
  })
  t.same(wrong, [])
})

t.test('every charge it names is one that the checker makes', async t => {
  const cited = [
    ...text.matchAll(/`npm run chaos(?: -- --profile (\w+))?` charges ((?:`\w+`(?:, )?)+)/g)
  ].flatMap(([, profile = 'quick', list = '']) =>
    list.split(', ').map(each => ({ profile, charge: each.slice(1, -1) }))
  )
  t.ok(cited.length > 20, `${cited.length} are cited`)
  const made = (profile: string): object =>
    profile === 'producers' ? { ...charges, ...producerCharges } : charges
  t.same(
    cited.filter(({ profile, charge }) => !(profile in profiles) || !(charge in made(profile))),
    []
  )
})
