// The process that is fuzzed: one subject, which plays the inputs that the parent sends. It prints nothing itself.
//   node child.js <module of the subject> <its options as JSON>
import { setImmediate as turn } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { monitor } from './monitor.ts'
import { Finding, type FindingKind } from './reader.ts'

/** The code that runs in its own process: the real code, and as little else as possible. Exported by its module as `subject`. */
export interface Subject<Options, Input> {
  (options: Options): Promise<{
    /** `within` gives up a promise that does not end. May throw a Finding. The reader judges the result. */
    play(input: Input, within: Within): Promise<unknown>
  }>
}

/** Rejects with Unsettled if `work` does not end within `ms` and many turns of the event loop after that. */
export type Within = <Result>(what: string, ms: number, work: Promise<Result>) => Promise<Result>

/** `rest`: collect garbage, return the MB that are still held, and reset the longest block. `look`: return the longest block since then. */
export type ChildRequest = { id: number } & ({ play: unknown } | { rest: true } | { look: true })
export type ChildAnswer =
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
      // It counts turns, not time: on a busy machine time passes without turns.
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

const send = (answer: ChildAnswer): void => {
  process.send?.(answer)
}

process.on('disconnect', () => process.exit(0))
const { subject } = (await import(pathToFileURL(module).href)) as { subject: Subject<unknown, unknown> }
const { play } = await subject(JSON.parse(options))

let starting: Promise<unknown> = Promise.resolve()

process.on('message', (request: ChildRequest) => {
  const { id } = request
  if ('look' in request) {
    // A block just after the answer still belongs to this batch.
    setTimeout(() => send({ id, result: watch.longestBlockMs() }), 30)
    return
  }
  if ('rest' in request) {
    globalThis.gc?.()
    watch.longestBlockMs()
    const { heapUsed, external } = process.memoryUsage()
    return send({ id, result: (heapUsed + external) / 1_048_576 })
  }
  // One turn for each input, or the start of a batch would be one long block.
  starting = starting.then(() => turn())
  starting
    .then(() => play(request.play, within))
    .then(
      result => send({ id, result }),
      (error: unknown) => {
        if (error instanceof Unsettled) send({ id, unsettled: error.message })
        else if (error instanceof Finding) send({ id, kind: error.kind, detail: error.detail })
        else send({ id, rejected: describe(error) })
      }
    )
})
send({ id: 0, result: 'ready' })

function describe(error: unknown): string {
  return (error instanceof Error ? (error.stack ?? error.message) : String(error)).slice(0, 1_000)
}
