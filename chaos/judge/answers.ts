// Charges about the answers of the service and its final states: are they consistent, and do they match the events?
import { callsOf, findingOf, isOk, wasSilenced, type Evidence } from './evidence.ts'
import type { Finding } from './finding.ts'
import { isUnclear, patienceMs } from '../client.ts'
import type { AlarmMessage, Call, History, SeenAlarm } from '../history.ts'
import { defaultTimes } from '../terms.ts'

export function vanished({ cases }: Evidence): Finding[] {
  return cases
    .filter((one, at) => cases[at - 1]?.planned !== one.planned)
    .flatMap(one => {
      if (one.okAt === undefined) return []
      if (one.task?.missing)
        return [findingOf(one, 'vanished', `the API answers ${one.task.status} at the end`)]
      const looks = callsOf(one, 'look').filter(call => call.status === 404)
      return looks.map(() => findingOf(one, 'vanished', 'GET right after the 2xx answered 404'))
    })
}

export function stuck({ cases }: Evidence): Finding[] {
  return cases
    .filter(one => one.seen?.status === 'SENDING')
    .map(one => findingOf(one, 'stuck', `still SENDING at attempt ${one.seen?.attempt ?? 0}`))
}

/**
 * No downstream refuses here, no receipt is FAILED, and nothing expires: a delivery ends FAILED only at its limit, and each try has an
 * attempt number. The only delivery of a task is FAILED when its redelivery is answered 2xx: it has its limit once more.
 */
export function failedEarly({ cases }: Evidence): Finding[] {
  return cases.flatMap(one => {
    const { planned, task, seen } = one
    if (seen?.status !== 'FAILED') return []
    const isAnew = task?.deliveries.length === 1 && callsOf(one, 'redeliver').some(call => isOk(call.status))
    const fewest = (planned.retryTimes ?? defaultTimes) * (isAnew ? 2 : 1)
    return seen.attempt < fewest
      ? [findingOf(one, 'failedEarly', `FAILED at attempt ${seen.attempt}, and its limit allows ${fewest}`)]
      : []
  })
}

export function receiptLost({ cases }: Evidence): Finding[] {
  return cases.flatMap(one => {
    const applied = one.receipts.some(
      ({ token, result, tries }) =>
        token === 'good' && result === 'HANDLED' && tries.some(tried => tried.status === 200 && tried.applied)
    )
    return applied && one.seen?.status !== 'HANDLED'
      ? [findingOf(one, 'receiptLost', `a receipt was applied, and it is ${one.seen?.status ?? 'unknown'}`)]
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
      return answered.length > 0 ? [] : [findingOf(one, 'falseHandled', 'its downstream never answered well')]
    const receipts = one.receipts.filter(
      ({ token, result, tries }) => token === 'good' && result === 'HANDLED' && tries.length > 0
    )
    return receipts.length > 0 || answered.some(({ handled }) => handled)
      ? []
      : [
          findingOf(
            one,
            'falseHandled',
            `no receipt was sent, handledBy is ${one.seen.handledBy ?? 'missing'}`
          )
        ]
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
  return history.calls.flatMap((call): Finding[] => {
    const { kind, taskNo, status } = call
    if (isUnclear(status)) return []
    const isWrong =
      (kind === 'wrong' && isOk(status)) ||
      ((kind === 'first' || kind === 'again') && !isOk(status)) ||
      (kind === 'redeliver' && !isOk(status) && !(status === 409 && mayBeOver(history, call)))
    return isWrong ? [{ charge: 'refused', taskNo, detail: `${kind} POST was answered ${status}` }] : []
  })
}

/** Nothing was FAILED any more: a try without a clear answer had begun the round, or a receipt had ended the delivery. */
const mayBeOver = ({ receipts }: History, { taskNo, tries }: Call): boolean =>
  tries.length > 1 ||
  receipts.some(one => one.taskNo === taskNo && one.token === 'good' && one.result === 'HANDLED')

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

/** The channel accepted a message about the alarm of its last attempt. The service alone says that it was sent. */
export function silentFailure({ history, cases }: Evidence): Finding[] {
  return cases.flatMap(one => {
    if (one.seen?.status !== 'FAILED') return []
    const { attempt } = one.seen
    const alarm = one.alarms.find(each => each.kind === 'FAILED' && each.attempt === attempt)
    if (!alarm) return [findingOf(one, 'silentFailure', `it has no alarm of attempt ${attempt}`)]
    if (alarm.sentAt === undefined) return [findingOf(one, 'silentFailure', 'its alarm was never sent')]
    return history.messages.some(message => isAbout(message, alarm, history.clockAheadMs))
      ? []
      : [findingOf(one, 'silentFailure', 'its alarm is marked as sent, and no accepted message is about it')]
  })
}

/** A message about many alarms lists only the first of them. */
const isAbout = (message: AlarmMessage, alarm: SeenAlarm, clockAheadMs: number): boolean =>
  isOk(message.status) &&
  message.kind === alarm.kind &&
  message.downstream === alarm.downstream &&
  message.at + clockAheadMs >= Date.parse(alarm.createdAt) &&
  (message.count > message.deliveries.length ||
    message.deliveries.some(one => one.taskNo === alarm.taskNo && one.attempt === alarm.attempt))

export function leaked({ history }: Evidence): Finding[] {
  return history.leaks.map(({ place, secret }) => ({ charge: 'leaked', detail: `${secret} in ${place}` }))
}

/** A process that cannot start while PostgreSQL or Redis is down may log that and end: its supervisor starts it again. */
export function crashed({ history, faultsIn }: Evidence): Finding[] {
  return history.exits.flatMap(({ launchedAt, at, name, code, signal, starting, by, logTail }): Finding[] => {
    if (by === 'kill') return []
    if (by === 'term' && code === 0) return []
    const outage = faultsIn(launchedAt, at, fault => keepsFromStarting(fault.action, logTail))
    if (by === undefined && starting && code === 1 && outage.length > 0) return []
    const how = code === null ? `by ${signal ?? 'an unknown signal'}` : `with exit code ${code}`
    const when = by === 'term' ? ' after SIGTERM' : starting ? ' before it was ready' : ''
    return [
      {
        charge: 'crashed',
        detail: `${name} ended ${how}${when}${logTail ? `; its log ends: ${logTail}` : ''}`
      }
    ]
  })
}

export function declaredDead(evidence: Evidence): Finding[] {
  return evidence.history.calledDead
    .filter(one => !wasSilenced(evidence, one))
    .map(({ process, at }) => ({
      charge: 'declaredDead',
      detail: `${process} learnt it at ${new Date(at).toISOString().slice(11, 23)}`
    }))
}

/** Without Redis, only this log line excuses the end of a start. Any other reason is a defect. */
const keepsFromStarting = (action: string, logTail: string | undefined) =>
  action.startsWith('postgres') ||
  (action.startsWith('redis') && /^ackbox: Redis at \S+ cannot be reached: .*$/.test(lastLine(logTail)))

const lastLine = (text = '') => text.trimEnd().split('\n').at(-1) ?? ''

/**
 * A rolling restart runs alone, and begins when every process is ready. Only a machine on which PostgreSQL and a process cannot answer
 * before the service or the producer gives up excuses a failed POST.
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

const insideCharges = { I10: 'orphan', I32: 'attemptFell', move: 'unexplainedMove' } as const

export function inside({ history }: Evidence): Finding[] {
  return history.inside.map(({ invariant, taskNo, detail }) => ({
    charge: insideCharges[invariant],
    taskNo,
    detail
  }))
}
