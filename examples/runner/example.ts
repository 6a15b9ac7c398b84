// The interface between an example and the runner: examples/NAME/example.ts exports an Example as `example`.
import type { Stage } from './stage.ts'

export interface Example {
  /** Its purpose, in one line of the list. */
  title: string
  /** The invariant, whichever program is killed; printed at the end. */
  invariant: string
  /** The amount of work without --count: payments, ticks, orders. */
  count: number
  /** Runs the story. Resolves with the violations, one line each: an empty list if the invariant holds. */
  play(stage: Stage): Promise<string[]>
}
