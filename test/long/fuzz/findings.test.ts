// A check that cannot fail is none: what is broken on purpose must be found, and found again from what was printed.
import t from 'tap'
import { conversationReader } from '../../../fuzz/conversation.ts'
import { Finding, type FindingKind, type RunContext } from '../../../fuzz/reader.ts'
import type { Way } from './broken.ts'

t.setTimeout(2_400_000)

const expected: Record<Exclude<Way, 'nothing'>, FindingKind> = {
  exit: 'exit',
  uncaught: 'exit',
  print: 'printed',
  leak: 'memory',
  flood: 'memory',
  block: 'block',
  unsettled: 'unsettled',
  rejected: 'rejected',
  wrong: 'wrong'
}

const broken = (way: Way) =>
  conversationReader<unknown>({
    name: 'broken',
    module: new URL('broken.js', import.meta.url),
    options: { way },
    shrinks: 8,
    valid: [{ answers: ['one two\r\n'], end: 'close' }],
    judge(result) {
      if (result === 'nonsense') throw new Finding('wrong', 'nonsense')
    }
  })

const context = (cases: number): RunContext => ({
  seed: 7,
  cases,
  isOver: () => false,
  progress: () => {},
  signal: new AbortController().signal
})

for (const [way, kind] of Object.entries(expected) as [Way, FindingKind][]) {
  t.test(
    `a subject whose fault is "${way}" is found out, and again by the input that was printed`,
    async t => {
      const found = await broken(way)
        .run(context(400))
        .catch((error: unknown) => error)
      if (!(found instanceof Finding)) return t.fail(`nothing was found: ${String(found)}`)
      const printed = JSON.parse(JSON.stringify(found.report)) as { input: unknown }
      t.match(printed, { reader: 'broken', kind, detail: /./, seed: Number })
      // On a busy machine the subject may hang up before the bytes are there.
      let again: unknown
      for (let tries = 0; tries < 20 && !(again instanceof Finding); tries++)
        again = await broken(way)
          .replay([printed.input])
          .catch((error: unknown) => error)
      t.match(again, { kind, report: { kind, input: printed.input } })
    }
  )
}

t.test('a subject without a fault is found to be sound, and the seed makes the same cases again', async t => {
  const done = await broken('nothing').run(context(64))
  t.match(done, { cases: 64, restarts: 1 })
  t.ok(done.longestBlockMs < 200)
  const stopped = await broken('nothing').run({ ...context(10_000), isOver: () => true })
  t.match(stopped, { cases: 0 }, 'and a run that is over ends')
})
