// The process that is fuzzed: one subject, which plays the inputs that the parent sends. It prints nothing itself.
//   node child.js <module of the subject> <its options as JSON>
import { setImmediate as turn } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { monitor } from './monitor.ts'
import { Finding, type FindingKind } from './reader.ts'

/** What runs in a process of its own: the real code, and as little else as can be. Exported by its module as `subject`. */
export interface Subject<Options, Input> {
  (options: Options): Promise<{
    /** `within` gives up a promise that does not end. May throw a Finding; the reader judges what is returned. */
    play(input: Input, within: Within): Promise<unknown>
  }>
}

/** Rejects with Unsettled when `work` does not end within so many ms, and many turns of the event loop after. */
export type Within = <Result>(what: string, ms: number, work: Promise<Result>) => Promise<Result>

/** `rest`: collect what was let go, say how many MB are not, and forget the blocks so far. `look`: how long the longest was since. */
export type Asked = { id: number } & ({ play: unknown } | { rest: true } | { look: true })
export type Answered =
  | { id: number; result: unknown }
  | { id: number; unsettled: string }
  | { id: number; rejected: string }
  | { id: number; kind: FindingKind; detail: string }

const [module = '', options = 'null'] = process.argv.slice(2)
const watch = monitor()
const graceTurns = 200

class Unsettled extends Error {}

const within: Within = async (what, ms, work) => {
  let timer: NodeJS.Timeout | undefined
  const never = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      // Turns, not time: a busy machine makes none.
      const last = watch.turns + graceTurns
      timer = setInterval(() => {
        if (watch.turns > last) reject(new Unsettled(what))
      }, 50)
    }, ms)
  })
  try {
    return await Promise.race([work, never])
  } finally {
    clearTimeout(timer)
  }
}

const say = (answer: Answered): void => {
  process.send?.(answer)
}

process.on('disconnect', () => process.exit(0))
const { subject } = (await import(pathToFileURL(module).href)) as { subject: Subject<unknown, unknown> }
const { play } = await subject(JSON.parse(options))

let starting: Promise<unknown> = Promise.resolve()

process.on('message', (asked: Asked) => {
  const { id } = asked
  if ('look' in asked) {
    // What went wrong just behind the answer is still part of it.
    setTimeout(() => say({ id, result: watch.longestBlockMs() }), 30)
    return
  }
  if ('rest' in asked) {
    globalThis.gc?.()
    watch.longestBlockMs()
    const { heapUsed, external } = process.memoryUsage()
    return say({ id, result: (heapUsed + external) / 1_048_576 })
  }
  // A turn for each, or all that are played at once would be one long block.
  starting = starting.then(() => turn())
  starting
    .then(() => play(asked.play, within))
    .then(
      result => say({ id, result }),
      (error: unknown) => {
        if (error instanceof Unsettled) say({ id, unsettled: error.message })
        else if (error instanceof Finding) say({ id, kind: error.kind, detail: error.detail })
        else say({ id, rejected: describe(error) })
      }
    )
})
say({ id: 0, result: 'ready' })

function describe(error: unknown): string {
  return (error instanceof Error ? (error.stack ?? error.message) : String(error)).slice(0, 1_000)
}
