// The events of one task, as each participant saw them.
import type { History } from '../history.ts'

export interface Event {
  at: number
  text: string
}

export function storyOf(history: History, taskNo: string): Event[] {
  const events: Event[] = []
  const tell = (at: number, text: string) => events.push({ at, text })
  for (const { kind, tries } of history.calls.filter(call => call.taskNo === taskNo))
    for (const { at, ms, status } of tries)
      tell(at, `producer: ${kind}, ${status === 0 ? 'no answer' : `answered ${status}`} after ${ms} ms`)
  const seen = history.arrivals.filter(arrival => arrival.taskNo === taskNo)
  for (const { at, downstream, attempt, answer, answeredAt, owed, sender, builtAt } of seen) {
    const end =
      answeredAt === undefined
        ? 'the client did not wait for the answer'
        : `answered after ${answeredAt - at} ms`
    tell(
      at,
      `${downstream}: attempt ${attempt} of ${sender} arrives, built ${Math.round(at - builtAt)} ms ago${owed ? ', owes a receipt' : ''}; ${answer}, ${end}`
    )
  }
  for (const { downstream, attempt, result, token, tries } of history.receipts.filter(
    one => one.taskNo === taskNo
  ))
    for (const { at, status, applied, deliveryStatus } of tries) {
      const application = applied === undefined ? '' : `, applied: ${applied}, ${deliveryStatus ?? ''}`
      tell(
        at,
        `${downstream}: receipt ${result} for attempt ${attempt}, ${token} token: ${status || 'no answer'}${application}`
      )
    }
  for (const { downstream, attempt, kind, createdAt, sentAt } of history.alarms.filter(
    one => one.taskNo === taskNo
  ))
    tell(
      Date.parse(createdAt),
      `alarm ${kind} for ${downstream}, attempt ${attempt}${sentAt ? ', sent' : ', not sent'}`
    )
  for (const { downstream, attempts } of history.tasks.find(one => one.taskNo === taskNo)?.deliveries ?? [])
    for (const { attempt, outcome, startedAt } of attempts)
      tell(Date.parse(startedAt), `API: attempt ${attempt} to ${downstream} starts; in the end ${outcome}`)
  const from = Math.min(...events.map(({ at }) => at))
  const to = Math.max(...events.map(({ at }) => at))
  for (const fault of history.faults) {
    if (fault.to < from || fault.from > to) continue
    tell(fault.from, `nemesis: ${fault.action} ${fault.target} begins`)
    tell(fault.to, `nemesis: ${fault.action} ${fault.target} is mended`)
  }
  return events.sort((a, b) => a.at - b.at)
}

/** Its final state, in a line. */
export function endOf(history: History, taskNo: string): string {
  const task = history.tasks.find(one => one.taskNo === taskNo)
  if (!task) return 'never read back'
  if (task.missing) return `the API answers ${task.status}`
  return task.deliveries
    .map(
      one => `${one.downstream}: ${one.status}${one.reason ? ` (${one.reason})` : ''}, attempt ${one.attempt}`
    )
    .join('; ')
}
