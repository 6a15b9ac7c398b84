// What a reader of the network is to the fuzzer, and what is held against one.

/** What must not happen, whatever the other side writes. */
export type FindingKind =
  | 'exit' // the process ended
  | 'printed' // a library wrote to stdout or stderr
  | 'memory' // more than 128 MB above idle
  | 'block' // the event loop stood still for more than 200 ms of CPU time
  | 'unsettled' // a promise that never ends
  | 'rejected' // a promise that rejects where it must say what happened
  | '5xx' // an answer that says that the fault is ours
  | 'wrong' // a value that must not come out

/** JSON as it is printed; a file of it in test/fuzz/corpus/<reader> is played again by the tests. */
export interface FindingReport {
  reader: string
  kind: FindingKind
  detail: string
  seed?: number
  /** What was played, as the reader's `replay` takes it. */
  input: unknown
}

/** Thrown by a reader for what must not happen. */
export class Finding extends Error {
  readonly kind: FindingKind
  readonly detail: string
  report: FindingReport | undefined

  constructor(kind: FindingKind, detail: string) {
    super(`${kind}: ${detail}`)
    this.kind = kind
    this.detail = detail
  }
}

export interface RunContext {
  seed: number
  /** So many at most. */
  cases: number
  /** Whether the time is over or somebody wants it to end. */
  isOver(): boolean
  progress(done: number): void
  signal: AbortSignal
}

export interface Done {
  cases: number
  /** Processes that were started. */
  restarts: number
  peakRssMb: number
  longestBlockMs: number
}

/** Whatever reads what the network says. One file each in fuzz/readers, which exports it as `reader`. */
export interface Reader {
  name: string
  /** Mutated inputs until `isOver()` or all `cases` are done. Throws a Finding, with its report, for what must not happen. */
  run(context: RunContext): Promise<Done>
  /** Inputs of the corpus, one after the other. Throws as `run` does. */
  replay(inputs: readonly unknown[]): Promise<Done>
}

/** What runs the inputs of one reader; see `campaign`. */
export interface Player<Input> {
  /** Plays them all at once. Throws a Finding; after it only `close` is called. */
  play(inputs: readonly Input[]): Promise<void>
  /** MB above idle, and ms of CPU time without a turn of the event loop, at the worst so far. */
  readonly peakRssMb: number
  readonly longestBlockMs: number
  close(): Promise<void>
}
