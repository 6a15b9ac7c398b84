// That the examples can fail: each is broken on purpose, and its own check must see it.
import { cpSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t, { type Test } from 'tap'
import { mutated } from '../../../chaos/mutant.ts'
import { program } from '../../support/program.ts'
import { folder } from '../../support/service.ts'

t.setTimeout(2_400_000)

const root = path.resolve(import.meta.dirname, '../../../..')
/** What a kill must hit by chance, it hits in one of these. */
const mostRuns = 4

interface Broken {
  example: string
  what: string
  file: string
  from: string
  to: string
  args: string[]
  sees: RegExp
}

const all: Broken[] = [
  {
    example: 'transfer',
    what: 'a bank credits whatever comes, without ackbox_received',
    file: 'src/consumer/receiver.js',
    from: 'result = begun.result;',
    to: 'result = await work(task);',
    args: ['--count', '240', '--kill', '12'],
    sees: /WRONG: transfer-\d+ arrived twice/
  },
  {
    example: 'stock-freeze',
    what: 'a time limit releases what a payment holds',
    file: 'examples/stock-freeze/stock.js',
    from: "state = 'FROZEN' and is_held = $3 returning",
    to: "state = 'FROZEN' and ($3 or true) returning",
    args: ['--count', '80'],
    sees: /WRONG: order-\d+ is paid and its stock released/
  }
]

for (const broken of all)
  t.test(`${broken.example} sees it when ${broken.what}`, async t => {
    const runner = path.join(copy(t, broken), 'examples/run.js')
    for (let nth = 1; nth <= mostRuns; nth++) {
      const { exited, lines } = program(t, process.execPath, [runner, broken.example, ...broken.args], {
        env: {}
      })
      const code = await exited
      t.comment(`run ${nth}: exit code ${code}`)
      if (code === 0) continue
      t.equal(code, 1)
      t.match(lines.join('\n'), broken.sees)
      return
    }
    t.fail(`${mostRuns} runs saw nothing`)
  })

/** A copy of what an example needs, with its fault; its folder dist. */
function copy(t: Test, broken: Broken): string {
  const to = folder(t)
  mkdirSync(path.join(to, 'dist'))
  for (const part of ['package.json', 'src/db/migrations', 'dist/src', 'dist/examples', 'examples'])
    cpSync(path.join(root, part), path.join(to, part), { recursive: true })
  symlinkSync(path.join(root, 'node_modules'), path.join(to, 'node_modules'))
  const dist = path.join(to, 'dist')
  writeFileSync(path.join(dist, broken.file), mutated(broken, dist))
  return dist
}
