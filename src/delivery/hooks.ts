import type { LoadedDelivery } from '../db/deliveries.ts'
import type { Sending } from '../handler/define.ts'
import type { LoadedDownstream, LoadedHandler } from '../handler/loaded.ts'
import type { AttemptEnd, Task } from '../domain/types.ts'
import type { Move } from '../domain/transitions.ts'
import { deliveryId } from '../domain/ids.ts'
import { reasonOf } from '../runtime/errors.ts'
import { isThenable, withTimeout } from '../runtime/with-timeout.ts'
import { textOf } from '../runtime/text-of.ts'

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
    const answer: unknown = await inHookTime('beforeSend', beforeSend(about))
    if (!answer) return undefined
    const { skip, postponeMs } = wishOf(answer)
    if (skip) return { ...key, name: 'skip', reason: 'SKIPPED' }
    return postponeMs === undefined ? undefined : { ...key, name: 'release', afterMs: postponeMs }
  } catch (err) {
    return { kind: 'failed', reason: `hook: ${reasonOf(err)}` }
  }
}

/** JavaScript may return anything. Only `skip: true` skips: a skipped delivery is never sent. */
function wishOf(answer: object): { skip: boolean; postponeMs?: number } {
  const { skip, postponeMs } = answer as { skip?: unknown; postponeMs?: unknown }
  if (skip === true) return { skip }
  if (skip !== undefined && skip !== false)
    throw new TypeError('beforeSend returned a skip that is neither true nor false')
  if (postponeMs === undefined && Object.hasOwn(answer, 'skip')) return { skip: false }
  // PostgreSQL would refuse a bad value, and the delivery would wait until its lease ends.
  if (typeof postponeMs !== 'number' || !Number.isFinite(postponeMs))
    throw new TypeError(`beforeSend returned postponeMs: ${textOf(postponeMs)}`)
  return { skip: false, postponeMs: Math.min(Math.max(0, postponeMs), longestMs) }
}
