// What an example is to the runner: examples/NAME/example.ts exports one as `example`.
import type { Stage } from './stage.ts'

export interface Example {
  /** What it shows; one line of the list. */
  title: string
  /** What must hold whatever is killed; printed at the end. */
  invariant: string
  /** How much work it does without --count: payments, ticks, orders. */
  count: number
  /** Plays the story. Resolves with what does not hold, one line each: nothing when all is well. */
  play(stage: Stage): Promise<string[]>
}
