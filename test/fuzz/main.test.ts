// The output and the exit codes of the fuzz command.
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import t from 'tap'
import { program } from '../support/program.ts'

t.setTimeout(2_400_000)

const main = path.resolve(import.meta.dirname, '../../fuzz/main.js')
const verdict = /^\{"verdict":.*\}$/

t.test('Ctrl-C ends a run with the verdict so far', async t => {
  const run = program(
    t,
    process.execPath,
    [main, '--only', 'targets,json', '--minutes', '30', '--seed', '7'],
    { env: {} }
  )
  await run.said(/^fuzz: seed 7, targets json$/)
  const code = run.stop('SIGINT')
  const [line] = await run.said(verdict)
  t.match(JSON.parse(line), { verdict: 'green', isInterrupted: true, seed: 7, findings: { length: 0 } })
  t.equal(await code, 130)
})

const ran = (args: readonly string[]) => {
  const { status, stdout, stderr } = spawnSync(process.execPath, [main, ...args], {
    env: {},
    encoding: 'utf8'
  })
  return { status, stdout, stderr }
}

t.test('so many cases of each reader, and what came of them', async t => {
  const { status, stdout } = ran(['--only', 'targets', '--cases', '700'])
  const said = JSON.parse(stdout) as { readers: Record<string, object> }
  t.match(said, { verdict: 'green', isInterrupted: false, cases: 700, findings: { length: 0 } })
  t.match(said.readers['targets'], { cases: 700, restarts: 1, peakRssMb: Number, longestBlockMs: Number })
  t.equal(status, 0)
})

t.test('an option that makes no sense is said, with exit code 2', async t => {
  for (const [args, stderr] of [
    [['--only', 'nobody'], /--only takes some of .*targets.*, not nobody; see --help/],
    [['--cases', 'many'], /--cases must be a positive whole number/],
    [['--cases', '5', '--minutes', '5'], /exclude each other/],
    [['--nonsense'], /nonsense.*; see --help/]
  ] as const)
    t.match(ran(args), { status: 2, stdout: '', stderr }, args.join(' '))
})
