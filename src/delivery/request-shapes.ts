import { writeShape, type RequestShape } from '../db/request-shapes.ts'
import type { Sql } from '../db/pool.ts'
import { waitGroup } from '../runtime/semaphore.ts'

/** Writes each shape of a request once. An attempt refers to it by its id, so nobody waits for the write. */
export interface RequestShapes {
  write(shape: RequestShape): void
  /** Resolves when no shape is being written. */
  idle(): Promise<void>
}

/** A handler may name headers after its tasks. Beyond this many shapes of a downstream their attempts have no names. */
const mostOfDownstream = 100

export function requestShapes(sql: Sql): RequestShapes {
  const written = new Map<string, Set<number>>()
  const busy = waitGroup()
  return {
    write(shape) {
      const key = `${shape.messageCode} ${shape.downstream}`
      const known = written.get(key) ?? new Set()
      written.set(key, known)
      if (known.has(shape.id) || known.size >= mostOfDownstream) return
      known.add(shape.id)
      busy.enter()
      // The next attempt with it writes it again.
      void writeShape(sql, shape)
        .catch(() => known.delete(shape.id))
        .then(busy.leave)
    },
    idle: busy.idle
  }
}
