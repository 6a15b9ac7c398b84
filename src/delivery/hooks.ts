import type { LoadedDelivery } from '../db/deliveries.ts'
import type { Sending } from '../handler/define.ts'
import type { LoadedDownstream, LoadedHandler } from '../handler/loaded.ts'
import type { AttemptEnd, Task } from '../domain/types.ts'
import type { Move } from '../domain/transitions.ts'
import { deliveryId } from '../domain/ids.ts'
import { reasonOf } from '../runtime/errors.ts'
import { isThenable, withTimeout } from '../runtime/with-timeout.ts'

/**
 * The arguments of hooks. `body` is parsed on first use: many hooks send the posted text as it is. It is a class, because an
 * object literal with a getter leaves a hidden class among V8's old objects each time (docs/decisions.md).
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

/** The time limit of a handler's hook. */
const hookMs = 5_000
/** A year. */
const longestMs = 365 * 24 * 3_600_000

/** The result of a hook, or a rejection after 5 s: a hanging hook fails only its own attempt. */
export function inHookTime<T>(name: string, returned: T | PromiseLike<T>): T | Promise<T> {
  if (!isThenable(returned)) return returned
  return withTimeout(returned, hookMs, () => {
    throw new Error(`${name} took longer than ${hookMs} ms`)
  })
}

/** What `beforeSend` decides other than to send: a move of the delivery, or the failure of the hook. */
export async function runBeforeSend(
  beforeSend: NonNullable<LoadedDownstream['beforeSend']>,
  about: LazyHookContext,
  key: Pick<Move, 'taskId' | 'downstream' | 'attempt' | 'orderingKey'>
): Promise<Move | AttemptEnd | undefined> {
  try {
    const wish = await inHookTime('beforeSend', beforeSend(about))
    if (!wish) return undefined
    if ('skip' in wish) return { ...key, name: 'skip', reason: 'SKIPPED' }
    return { ...key, name: 'release', afterMs: postponed(wish.postponeMs) }
  } catch (err) {
    return { kind: 'failed', reason: `hook: ${reasonOf(err)}` }
  }
}

/** JavaScript may return anything. PostgreSQL would refuse a bad value, and the delivery would wait until its lease ends. */
function postponed(ms: number): number {
  if (!Number.isFinite(ms)) throw new TypeError(`beforeSend returned postponeMs: ${String(ms)}`)
  return Math.min(Math.max(0, ms), longestMs)
}
