import type { Loaded } from '../db/load.ts'
import type { LoadedHandler, Sending } from '../handler/define.ts'
import type { Task } from '../task/task.ts'
import { deliveryId } from '../task/uuid.ts'

/**
 * What hooks are told of a delivery. `body` is parsed when a hook asks for it: many send the posted text as it is. A class,
 * as each literal with a getter of its own leaves something behind among the old objects (docs/decisions.md).
 */
export class LazySending implements Sending<unknown> {
  readonly task: Readonly<Task>
  readonly raw: string
  readonly attempt: number
  readonly deliveryId: string
  readonly #handlers: ReadonlyMap<string, LoadedHandler>
  #parsed: { body: unknown } | undefined

  constructor(handlers: ReadonlyMap<string, LoadedHandler>, { task, downstream, attempt }: Loaded) {
    this.task = task
    this.raw = task.messageBody
    this.attempt = attempt
    this.deliveryId = deliveryId(task.id, downstream)
    this.#handlers = handlers
  }

  get body(): unknown {
    this.#parsed ??= {
      body: this.#handlers.get(this.task.messageCode)?.body.parse(JSON.parse(this.raw))
    }
    return this.#parsed.body
  }
}
