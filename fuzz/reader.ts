// The interface between the fuzzer and a reader of the network, and the kinds of findings.

/** Events that must not happen with any input. */
export type FindingKind =
  | 'exit' // the process ended
  | 'printed' // a library wrote to stdout or stderr
  | 'memory' // more than 128 MB above idle
  | 'block' // the event loop stood still for more than 200 ms of CPU time
  | 'unsettled' // a promise that never ends
  | 'rejected' // a promise that rejects where it must resolve to an outcome
  | '5xx' // an answer that reports a fault of the service
  | 'wrong' // a value that is not allowed

/** The printed JSON of a finding. The tests play it again as a file in test/fuzz/corpus/<reader>. */
export interface FindingReport {
  reader: string
  kind: FindingKind
  detail: string
  seed?: number
  /** The input, as the reader's `replay` takes it. */
  input: unknown
}

/** Thrown by a reader for an event that must not happen. */
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
  /** The most cases that are played. */
  cases: number
  /** Whether the time is over or the run was interrupted. */
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

/** A reader of data from the network. Each has a file in fuzz/readers, which exports it as `reader`. */
export interface Reader {
  name: string
  /** Plays mutated inputs until `isOver()` or all `cases` are done. Throws a Finding with its report. */
  run(context: RunContext): Promise<Done>
  /** Plays inputs of the corpus, one after the other. Throws as `run` does. */
  replay(inputs: readonly unknown[]): Promise<Done>
}

/** Plays the inputs of one reader; see `campaign`. */
export interface Player<Input> {
  /** Plays all inputs at once. Throws a Finding. After that only `close` is called. */
  play(inputs: readonly Input[]): Promise<void>
  /** The highest MB above idle, and the most ms of CPU time without a turn of the event loop, so far. */
  readonly peakRssMb: number
  readonly longestBlockMs: number
  close(): Promise<void>
}
