// What the service answered, and what it says in the end: is it consistent, and does it agree with what happened?
import { asked, found, isOk, type Evidence } from './evidence.ts'
import type { Finding } from './finding.ts'
import { isUnclear, patienceMs } from '../client.ts'

export function vanished({ cases }: Evidence): Finding[] {
  return cases
    .filter((one, at) => cases[at - 1]?.planned !== one.planned)
    .flatMap(one => {
      if (one.okAt === undefined) return []
      if (one.task?.missing) return [found(one, 'vanished', `the API answers ${one.task.status} at the end`)]
      const looks = asked(one, 'look').filter(call => call.status === 404)
      return looks.map(() => found(one, 'vanished', 'GET right after the 2xx answered 404'))
    })
}

export function stuck({ cases }: Evidence): Finding[] {
  return cases
    .filter(one => one.seen?.status === 'SENDING')
    .map(one => found(one, 'stuck', `still SENDING at attempt ${one.seen?.attempt ?? 0}`))
}

export function receiptLost({ cases }: Evidence): Finding[] {
  return cases.flatMap(one => {
    const applied = one.receipts.some(
      ({ token, result, tries }) =>
        token === 'good' && result === 'HANDLED' && tries.some(tried => tried.status === 200 && tried.applied)
    )
    return applied && one.seen?.status !== 'HANDLED'
      ? [found(one, 'receiptLost', `a receipt was applied, and it is ${one.seen?.status ?? 'unknown'}`)]
      : []
  })
}

export function falseHandled({ cases }: Evidence): Finding[] {
  return cases.flatMap(one => {
    if (one.seen?.status !== 'HANDLED') return []
    const answered = one.arrivals.filter(
      ({ answer, answeredAt }) => answeredAt !== undefined && (answer === 'late' || isOk(Number(answer)))
    )
    if (!one.owed)
      return answered.length > 0 ? [] : [found(one, 'falseHandled', 'its downstream never answered well')]
    const receipts = one.receipts.filter(
      ({ token, result, tries }) => token === 'good' && result === 'HANDLED' && tries.length > 0
    )
    return receipts.length > 0 || answered.some(({ handled }) => handled)
      ? []
      : [found(one, 'falseHandled', `no receipt was sent, HANDLED by ${one.seen.handledBy ?? 'nobody'}`)]
  })
}

export function forged({ history }: Evidence): Finding[] {
  return history.receipts
    .filter(({ token }) => token === 'bad')
    .flatMap(({ taskNo, downstream, tries }) =>
      tries
        .filter(({ status }) => !isUnclear(status) && status !== 401)
        .map(
          ({ status }) => ({ charge: 'forged', taskNo, downstream, detail: `answered ${status}` }) as const
        )
    )
}

export function conflict({ history }: Evidence): Finding[] {
  return history.calls
    .filter(({ kind, status }) => kind === 'conflict' && !isUnclear(status) && status !== 409)
    .map(({ taskNo, status }) => ({ charge: 'conflict', taskNo, detail: `answered ${status}` }))
}

export function refused({ history }: Evidence): Finding[] {
  return history.calls.flatMap(({ kind, taskNo, status }): Finding[] => {
    if (isUnclear(status)) return []
    const isWrong =
      (kind === 'wrong' && isOk(status)) || ((kind === 'first' || kind === 'again') && !isOk(status))
    return isWrong ? [{ charge: 'refused', taskNo, detail: `${kind} POST was answered ${status}` }] : []
  })
}

export function unanswered({ history }: Evidence): Finding[] {
  if (history.interrupted) return []
  return history.calls
    .filter(({ status }) => isUnclear(status))
    .map(({ kind, taskNo, status, tries }) => ({
      charge: 'unanswered',
      taskNo,
      detail: `${kind}: ${tries.length} tries, the last answered ${status}`
    }))
}

export function silentFailure({ cases }: Evidence): Finding[] {
  return cases
    .filter(one => one.seen?.status === 'FAILED')
    .filter(one => !one.alarms.some(({ kind, sentAt }) => kind === 'FAILED' && sentAt !== undefined))
    .map(one => {
      const alarm = one.alarms.find(({ kind }) => kind === 'FAILED')
      return found(one, 'silentFailure', alarm ? 'its alarm was never sent' : 'it has no alarm')
    })
}

export function leaked({ history }: Evidence): Finding[] {
  return history.leaks.map(({ where, what }) => ({ charge: 'leaked', detail: `${what} in ${where}` }))
}

/** One that cannot start while PostgreSQL or Redis is gone says so and ends: that is what a supervisor is for. */
export function crashed({ history, faultsIn }: Evidence): Finding[] {
  return history.exits.flatMap(({ launchedAt, at, name, code, signal, starting, by, said }): Finding[] => {
    if (by === 'kill') return []
    if (by === 'term' && code === 0) return []
    const outage = faultsIn(launchedAt, at, fault => keepsFromStarting(fault.action, said))
    if (by === undefined && starting && code === 1 && outage.length > 0) return []
    const how = code === null ? `by ${signal ?? 'nobody knows what'}` : `with exit code ${code}`
    const when = by === 'term' ? ' after SIGTERM' : starting ? ' before it was ready' : ''
    return [
      {
        charge: 'crashed',
        detail: `${name} ended ${how}${when}${said ? `; its log ends: ${said}` : ''}`
      }
    ]
  })
}

/** A start without Redis that ends for any other reason is a defect: only the one line is an excuse. */
const keepsFromStarting = (action: string, said: string | undefined) =>
  action.startsWith('postgres') ||
  (action.startsWith('redis') && /^ackbox: Redis at \S+ cannot be reached: .*$/.test(lastLine(said)))

const lastLine = (said = '') => said.trimEnd().split('\n').at(-1) ?? ''

/**
 * A rolling restart comes alone, and begins when every process is ready: nothing else is to blame but a machine on which PostgreSQL
 * and a process cannot answer before the service or the producer gives up.
 */
export function rollingPost({ history, hasWorked }: Evidence): Finding[] {
  const rolling = history.faults.filter(({ action }) => action === 'rolling')
  const isRolled = (at: number) => rolling.some(({ from, to }) => at >= from && at <= to)
  return history.calls
    .filter(({ kind }) => kind !== 'look')
    .flatMap(({ kind, taskNo, tries }) =>
      tries
        .filter(
          ({ at, ms, status }) => isUnclear(status) && isRolled(at) && hasWorked(at - patienceMs, at + ms)
        )
        .map(({ status }): Finding => ({
          charge: 'rollingPost',
          taskNo,
          detail: `${kind}: answered ${status}`
        }))
    )
}

export function inside({ history }: Evidence): Finding[] {
  return history.inside.map(({ invariant, taskNo, detail }) => ({
    charge: invariant === 'I10' ? 'orphan' : 'attemptFell',
    taskNo,
    detail
  }))
}
