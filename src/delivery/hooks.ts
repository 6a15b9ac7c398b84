import type { LoadedDelivery } from '../db/deliveries.ts'
import type { LoadedHandler, Sending } from '../handler/define.ts'
import type { Task } from '../domain/types.ts'
import { deliveryId } from '../domain/ids.ts'
import { isThenable, withTimeout } from '../runtime/with-timeout.ts'

/**
 * What hooks are told of a delivery. `body` is parsed when a hook asks for it: many send the posted text as it is. A class,
 * as each literal with a getter of its own leaves something behind among the old objects (docs/decisions.md).
 */
export class LazyHookContext implements Sending<unknown> {
  readonly task: Readonly<Task>
  readonly raw: string
  readonly attempt: number
  readonly deliveryId: string
  readonly #handlers: ReadonlyMap<string, LoadedHandler>
  #parsed: { body: unknown } | undefined

  constructor(handlers: ReadonlyMap<string, LoadedHandler>, { task, downstream, attempt }: LoadedDelivery) {
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

/** The longest a handler's hook may take. */
const hookMs = 5_000
/** A year, as for a start time. */
const longestMs = 365 * 24 * 3_600_000

/** What a hook returned, or a rejection after 5 s: a hook that hangs fails its own attempt and nothing else. */
export function inHookTime<T>(name: string, returned: T | PromiseLike<T>): T | Promise<T> {
  if (!isThenable(returned)) return returned
  return withTimeout(returned, hookMs, () => {
    throw new Error(`${name} took longer than ${hookMs} ms`)
  })
}

/** What a hook threw, short enough for a reason. */
export const messageOf = (err: unknown): string =>
  (err instanceof Error ? err.message : String(err)).slice(0, 200)

/** From JavaScript anything may come; PostgreSQL would refuse it, and the delivery stand still until its lease ran out. */
export function postponed(ms: number): number {
  if (!Number.isFinite(ms)) throw new TypeError(`beforeSend asks for postponeMs: ${String(ms)}`)
  return Math.min(Math.max(0, ms), longestMs)
}
