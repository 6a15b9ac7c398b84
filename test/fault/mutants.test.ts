// The service, broken on purpose in code that the chaos runs do not reach: the named tests must fail.
// Takes long: npm run test:long.
import path from 'node:path'
import t, { type Test } from 'tap'
import { copyChanged, type Change } from '../../chaos/mutant.ts'
import { program } from '../support/program.ts'
import { folder } from '../support/service.ts'

t.setTimeout(2_400_000)

const root = path.resolve(import.meta.dirname, '../../..')

interface Broken {
  what: string
  changes: Change[]
  /** The test that must fail. `title`: the beginning of its title. */
  test: string
  title: string
}

const all: Broken[] = [
  {
    what: 'a day of attempts and receipts is dropped by its age alone, whatever tasks it has',
    changes: [
      { file: 'src/db/partitions.js', from: 'if (look.has) {', to: 'if (false) {' },
      {
        file: '../src/db/migrations/0007_partitions.sql',
        from: 'IF NOT FOUND OR EXISTS (',
        to: 'IF NOT FOUND OR false AND EXISTS ('
      }
    ],
    test: 'test/db/partitions.test.js',
    title: 'H3: with random states, days and clocks'
  },
  {
    what: 'the content of a row is hashed with what its producer never said, and is another than that of a POST',
    changes: [
      {
        file: 'src/api/outbox-row.js',
        from: "present('sceneType', row.sceneType === '' ? null : row.sceneType)",
        to: "present('sceneType', row.sceneType)"
      }
    ],
    test: 'test/fault/outbox.test.js',
    title: 'whoever is asked for it brings rows in at once'
  }
]

for (const broken of all)
  t.test(`${broken.test} sees it when ${broken.what}`, async t => {
    const whole = await ends(t, broken, [])
    t.equal(whole.code, 0, 'as it is, it is green')
    const { code, lines } = await ends(t, broken, broken.changes)
    t.equal(code, 1)
    t.match(lines.join('\n'), new RegExp(`^not ok \\d+ - ${broken.title}`, 'm'))
  })

/** Runs this one test, in a copy of the compiled files with the changes. */
async function ends(t: Test, { test, title }: Broken, changes: readonly Change[]) {
  const to = folder(t)
  const dist = copyChanged(root, to, ['dist/test', 'dist/chaos'], changes)
  const run = program(t, process.execPath, [path.join(dist, test)], {
    env: { TAP_GREP: `/^${title}/`, TAP_TIMEOUT: '300' },
    cwd: to
  })
  return { code: await run.exited, lines: run.lines }
}
