// npm run example -- NAME: runs one of the examples in this folder.
import { existsSync, readdirSync } from 'node:fs'
import path from 'node:path'
import { parseArgs } from 'node:util'
import type { Example } from './runner/example.ts'
import { openStage } from './runner/stage.ts'

const help = `npm run example -- NAME [options]

Starts Ackbox with its embedded PostgreSQL, and the programs of the example with databases of their own, on free ports and in a
temporary folder. It says what happens, checks what must hold, and ends everything. Ctrl-C ends everything too.

  --kill N     kill -9 of one program after the other, N times, while they work; each is started again
  --seed N     other moments of the kills (default: a random one, printed)
  --count N    more or less work
  --verbose    what the programs print
  --help

Exit: 0 what must hold holds · 1 it does not, or something failed · 2 the question makes no sense`

const sources = path.resolve(import.meta.dirname, '../../examples')
// A stopped story may still wait for something, so the process exits explicitly.
process.exit(await main())

async function main(): Promise<number> {
  const { values, positionals } = options()
  const [name, ...more] = positionals
  if (values.help || name === undefined) {
    console.log(`${help}\n\nExamples:\n${await list()}`)
    return values.help ? 0 : 2
  }
  const found = more.length === 0 ? await load(name) : undefined
  if (!found) return refuse(`there is no example ${positionals.join(' ')}; there are:\n${await list()}`)
  const [kills, seed, count] = [
    number(values.kill, 0),
    number(values.seed, Math.floor(Math.random() * 1_000_000)),
    number(values.count, found.count)
  ]
  if (kills === undefined || seed === undefined || !count)
    return refuse('--kill, --seed and --count take a number')
  return await play(name, found, { kills, seed, count, verbose: values.verbose ?? false })
}

interface Request {
  kills: number
  seed: number
  count: number
  verbose: boolean
}

async function play(name: string, example: Example, request: Request): Promise<number> {
  console.log(`${name}: ${example.title}`)
  if (request.kills > 0)
    console.log(`${request.kills} kills; again with the same moments: --seed ${request.seed}`)
  const { stage, failed, close } = openStage({
    ...request,
    source: path.join(sources, name),
    compiled: path.join(import.meta.dirname, name)
  })
  const stopped = new Promise<'stopped'>(resolve => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
      process.on(signal, () => resolve('stopped'))
  })
  try {
    const playing = example.play(stage)
    // If something else ends the run, its result no longer matters.
    playing.catch(() => {})
    const wrong = await Promise.race([playing, failed, stopped])
    if (wrong === 'stopped') {
      stage.step('stopping')
      return 130
    }
    for (const line of wrong) stage.step(`WRONG: ${line}`)
    stage.step(`${wrong.length === 0 ? 'It holds' : 'It does NOT hold'}: ${example.invariant}`)
    return wrong.length === 0 ? 0 : 1
  } catch (err) {
    stage.step(`failed: ${err instanceof Error ? err.message : String(err)}`)
    return 1
  } finally {
    await close()
  }
}

async function load(name: string): Promise<Example | undefined> {
  const file = path.join(import.meta.dirname, name, 'example.js')
  if (!names().includes(name) || !existsSync(file)) return undefined
  const { example } = (await import(file)) as { example: Example }
  return example
}

function names(): string[] {
  const isExample = (name: string): boolean =>
    ['example.ts', 'handlers'].every(each => existsSync(path.join(sources, name, each)))
  return readdirSync(sources).filter(isExample)
}

async function list(): Promise<string> {
  const width = Math.max(...names().map(name => name.length))
  const titles = names().map(async name => `  ${name.padEnd(width)}  ${(await load(name))?.title ?? ''}`)
  return (await Promise.all(titles)).join('\n')
}

function options() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        kill: { type: 'string' },
        seed: { type: 'string' },
        count: { type: 'string' },
        verbose: { type: 'boolean' },
        help: { type: 'boolean', short: 'h' }
      }
    })
  } catch (err) {
    refuse(err instanceof Error ? err.message : String(err))
    process.exit(2)
  }
}

function number(text: string | undefined, otherwise: number): number | undefined {
  if (text === undefined) return otherwise
  return /^\d{1,6}$/.test(text) ? Number(text) : undefined
}

function refuse(message: string): number {
  console.error(message)
  return 2
}
