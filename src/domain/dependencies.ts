/** How many tasks another one still waits for, by what became of them. */
export interface Prerequisites {
  sending: number
  failed: number
  deleted: number
}

/**
 * What its prerequisites make of a task that waits. `fail`: one was deleted, so that it can never go. `hold`: one FAILED, which a
 * late receipt or an operator may still mend. `wait`: they are on their way. `unblock`: nothing is left to wait for.
 */
export function dependentVerdict({
  sending,
  failed,
  deleted
}: Prerequisites): 'fail' | 'hold' | 'wait' | 'unblock' {
  if (deleted > 0) return 'fail'
  if (failed > 0) return 'hold'
  return sending > 0 ? 'wait' : 'unblock'
}
