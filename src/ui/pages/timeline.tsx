import { prettyJson } from '../pretty-json.ts'
import { Act, copy } from '../acts.tsx'
import { query } from '../api.ts'
import { Link, ms, Pair, Time } from '../parts.tsx'
import type { Alarm, Attempt, AuditRow, Receipt, Task } from '../shapes.ts'
import { texts } from '../state.ts'
import { Sent } from './sent.tsx'

type Event =
  | { at: string; kind: 'accepted'; by: string | undefined }
  | { at: string; kind: 'attempt'; downstream: string; of: Attempt; isLast: boolean }
  | { at: string; kind: 'receipt'; downstream: string; of: Receipt }
  | { at: string; kind: 'audit'; of: AuditRow }
  | { at: string; kind: 'alarm' | 'resolved'; of: Alarm }

/** All events of a task by time, oldest first. */
export function Timeline({
  task,
  audit,
  alarms
}: {
  task: Task
  audit: readonly AuditRow[]
  alarms: readonly Alarm[]
}) {
  const events: Event[] = [
    { at: task.createdAt, kind: 'accepted', by: task.createdBy },
    ...task.deliveries.flatMap(({ downstream, attempts = [], receipts = [] }): Event[] => [
      ...attempts.map((of): Event => ({
        at: of.startedAt,
        kind: 'attempt',
        downstream,
        of,
        isLast: of === attempts.at(-1)
      })),
      ...receipts.map((of): Event => ({ at: of.createdAt, kind: 'receipt', downstream, of }))
    ]),
    ...audit.map((of): Event => ({ at: of.at, kind: 'audit', of })),
    ...alarms.flatMap((of): Event[] => [
      { at: of.createdAt, kind: 'alarm', of },
      ...(of.resolvedAt === undefined ? [] : [{ at: of.resolvedAt, kind: 'resolved' as const, of }])
    ])
  ]
  events.sort((a, b) => Date.parse(a.at) - Date.parse(b.at))
  return (
    <>
      <Omitted task={task} />
      <ol class="timeline">
        {events.map((event, at) => (
          <li key={at} class={markOf(event)}>
            <Time at={event.at} ago={false} /> <One event={event} />
          </li>
        ))}
      </ol>
    </>
  )
}

/** A line for each delivery whose older attempts or receipts are not here. */
function Omitted({ task }: { task: Task }) {
  const words = texts.value.task
  return task.deliveries.map(({ downstream, attempts = [], receipts = [], attemptsTotal, receiptsTotal }) =>
    attemptsTotal === undefined && receiptsTotal === undefined ? null : (
      <p key={downstream} class="quiet">
        <b>{downstream}</b>{' '}
        {[
          attemptsTotal === undefined ? '' : words.newestAttempts(attempts.length, attemptsTotal),
          receiptsTotal === undefined ? '' : words.newestReceipts(receipts.length, receiptsTotal)
        ]
          .filter(Boolean)
          .join(' · ')}
      </p>
    )
  )
}

/** `probed`: the downstream had handled it. */
const isGood = ({ outcome }: Attempt): boolean => outcome === 'delivered' || outcome === 'probed'

function markOf(event: Event): string {
  if (event.kind === 'attempt') return isGood(event.of) && event.of.reason === undefined ? 'good' : 'bad'
  if (event.kind === 'receipt') return event.of.result === 'HANDLED' ? 'good' : 'bad'
  if (event.kind === 'alarm') return 'bad'
  if (event.kind === 'resolved') return 'good'
  return event.kind === 'audit' ? 'hand' : ''
}

function One({ event }: { event: Event }) {
  const words = texts.value.task
  switch (event.kind) {
    case 'accepted':
      return (
        <>
          {words.accepted} <span class="quiet">{event.by === undefined ? '' : words.postedBy(event.by)}</span>
        </>
      )
    case 'attempt':
      return <AttemptLine {...event} />
    case 'receipt': {
      const { result, reason, data, attempt, late, applied } = event.of
      return (
        <>
          <b>{event.downstream}</b> {words.receipt} {result} ({words.attempt(attempt)}
          {late ? `, ${words.late}` : ''}
          {applied ? '' : `, ${words.changedNothing}`}) {reason ?? ''}
          {data === undefined ? null : <pre tabIndex={0}>{prettyJson(data)}</pre>}
        </>
      )
    }
    case 'alarm':
    case 'resolved': {
      const { kind, downstream, reason, sentAt } = event.of
      const why = reason === undefined ? '' : (texts.value.reason[reason] ?? reason)
      return (
        <>
          <b>{downstream}</b> {words.alarm} {kind}{' '}
          {event.kind === 'resolved' ? texts.value.alarms.resolved : why}{' '}
          {event.kind === 'alarm' && sentAt !== undefined ? (
            <span class="quiet">
              {texts.value.alarms.sent} <Time at={sentAt} ago={false} />
            </span>
          ) : null}
        </>
      )
    }
    case 'audit':
      return (
        <>
          <What of={event.of} /> <span class="quiet">{words.by(event.of.who)}</span>{' '}
          {event.of.detail === undefined || event.of.detail === null ? null : (
            <code>{JSON.stringify(event.of.detail)}</code>
          )}
        </>
      )
  }
}

/** A bulk redelivery is a link to its page. */
function What({ of: { what, target } }: { of: AuditRow }) {
  if (what !== 'tasks.redeliver') return <>{what}</>
  return <Link to={`/ui/operation${query({ id: target })}`}>{what}</Link>
}

function AttemptLine({ downstream, of, isLast }: { downstream: string; of: Attempt; isLast: boolean }) {
  const words = texts.value.task
  return (
    <details open={isLast && !isGood(of)}>
      <summary>
        <b>{downstream}</b> {words.attempt(of.attempt)} {of.status ?? ''} {isGood(of) ? '✓' : ''} {of.reason}{' '}
        <span class="quiet">{ms(of.ms)}</span>
      </summary>
      <dl class="pairs">
        {of.address === undefined ? null : <Pair name={words.address} value={of.address} />}
        <Pair name={words.node} value={of.node} />
        {of.warning === undefined ? null : <Pair name="⚠" value={of.warning} />}
      </dl>
      {of.request === undefined ? null : <Sent of={of.request} />}
      {of.answer === undefined ? null : (
        <>
          <h3>{words.answer}</h3>
          <pre tabIndex={0}>{of.answer}</pre>
          <Act run={() => copy(of.answer ?? '')}>{texts.value.common.copy}</Act>
        </>
      )}
      {of.headers === undefined ? null : (
        <>
          <h3>{words.headers}</h3>
          <pre tabIndex={0}>{of.headers.map(pair => pair.join(': ')).join('\n')}</pre>
        </>
      )}
    </details>
  )
}
