// A client that counts its statements. Statements and fragments are made by the same call: only an awaited query is counted.
import type { Sql } from '../../src/db/pool.ts'

export interface Counted {
  sql: Sql
  /** Statements so far. */
  statements(): number
}

export function counted(sql: Sql): Counted {
  const awaited = new WeakSet<object>()
  let statements = 0
  const counting = new Proxy(sql, {
    apply(target, self, args: unknown[]) {
      const query: unknown = Reflect.apply(target, self, args)
      if (!(query instanceof Promise)) return query
      return new Proxy(query, {
        get(of, name) {
          if (name === 'then' && !awaited.has(of)) {
            awaited.add(of)
            statements++
          }
          const member: unknown = Reflect.get(of, name, of)
          return typeof member === 'function' ? member.bind(of) : member
        }
      })
    }
  })
  return { sql: counting, statements: () => statements }
}
