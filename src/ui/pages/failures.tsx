import { useRef } from 'preact/hooks'
import { get, post, query } from '../api.ts'
import { Spark } from '../chart.tsx'
import { countText, isUncounted, sumOf, type Count } from '../counts.ts'
import { Act, askLater, AskAct, say } from '../acts.tsx'
import {
  Choice,
  Heading,
  Link,
  number,
  Shown,
  SpanChoice,
  spanNames,
  spanOr,
  spans,
  taskPath,
  Time
} from '../parts.tsx'
import { List, listOf, taskColumn } from '../list.tsx'
import type { Delivery, Failures, Group, Operation } from '../shapes.ts'
import { useList, useLoaded } from '../loaded.ts'
import { go, may, now, param, texts } from '../state.ts'

export function FailuresPage() {
  const span = param('span') === 'all' ? 'all' : spanOr('1d')
  const downstream = param('downstream')
  const fingerprint = param('fingerprint')
  const isArchived = param('archived') === 'true'
  const words = texts.value.failures
  const to = (more: Record<string, string | undefined>): string =>
    `/ui/failures${query({ span, downstream, fingerprint, archived: isArchived ? 'true' : undefined, ...more })}`
  const from = span === 'all' ? new Date(0) : new Date(now.value.getTime() - spans[span] * 1_000)
  const loaded = useLoaded(
    `failures ${span} ${downstream} ${fingerprint} ${isArchived}`,
    () =>
      get<Failures>(
        `/failures${query({ from: from.toISOString(), downstream, fingerprint, archived: isArchived ? true : undefined, limit: 200 })}`
      ),
    { kinds: ['failure', 'audit'], everyMs: 15_000 }
  )
  return (
    <>
      <Heading title={texts.value.pages.failures}>
        <SpanChoice values={[...spanNames, 'all']} value={span} choose={one => go(to({ span: one }))} />
        <Choice
          label={words.archived}
          values={['open', 'archived'] as const}
          value={isArchived ? 'archived' : 'open'}
          choose={one => go(to({ archived: one === 'archived' ? 'true' : undefined }))}
          nameOf={one => words[one]}
        />
      </Heading>
      <p class="quiet">
        {words.intro}{' '}
        {downstream === '' ? null : (
          <Link to={to({ downstream: undefined, fingerprint: undefined })}>{downstream} ✕</Link>
        )}
      </p>
      <Running />
      <Shown loaded={loaded}>
        {({ failures, partial }) => (
          <>
            {failures.length === 0 && !partial ? <p class="quiet empty">{texts.value.common.none}</p> : null}
            <ul class="groups">
              {failures.map(group => (
                <GroupCard
                  key={group.fingerprint}
                  group={group}
                  isOfAllTimes={span === 'all'}
                  reload={loaded.reload}
                />
              ))}
            </ul>
            {fingerprint === '' ? null : <Deliveries downstream={downstream} fingerprint={fingerprint} />}
            {partial ? <p class="quiet">{words.partial}</p> : null}
          </>
        )}
      </Shown>
    </>
  )
}

/** The running bulk redeliveries of all users. */
function Running() {
  const { value } = useLoaded(
    'running',
    () => get<{ operations: Operation[] }>(`/operations${query({ limit: 200 })}`),
    { kinds: ['audit'], everyMs: 5_000 }
  )
  const words = texts.value.operation
  const running = value?.operations.filter(one => one.state === 'RUNNING') ?? []
  if (running.length === 0) return null
  return (
    <section class="card">
      <h2>{words.running}</h2>
      <ul class="plain">
        {running.map(({ id, redelivered, skipped, matched, filter, createdBy, createdAt }) => (
          <li key={id}>
            <p>
              <Link to={`/ui/operation${query({ id })}`}>
                {words.progress(redelivered + skipped, countText(matched))}
              </Link>
            </p>
            <p class="quiet">
              {filterText(filter)} · {words.by} {createdBy} <Time at={createdAt} />
            </p>
          </li>
        ))}
      </ul>
    </section>
  )
}

export const filterText = (filter: Record<string, string>): string =>
  Object.entries(filter)
    .map(([name, text]) => `${name}:${text}`)
    .join(' ') || texts.value.failures.every

type FailedDelivery = Delivery & { taskNo: string; messageCode: string; createdAt: string }

/** The deliveries of a group that are FAILED now. "Redeliver" redelivers these. */
function Deliveries({ downstream, fingerprint }: { downstream: string; fingerprint: string }) {
  const words = texts.value
  const filter = { status: 'FAILED', downstream, fingerprint }
  const loaded = useList(
    `failed ${downstream} ${fingerprint}`,
    listOf<'deliveries', FailedDelivery>('deliveries', '/deliveries', filter),
    { kinds: ['failure', 'audit'], everyMs: 15_000 }
  )
  return (
    <List
      title={words.failures.nowFailed}
      loaded={loaded}
      keyOf={row => `${row.taskNo} ${row.downstream}`}
      open={row => go(taskPath(row.taskNo))}
      columns={[
        taskColumn(),
        { name: words.tasks.code, cell: row => row.messageCode },
        { name: words.tasks.last, cell: row => <span class="line">{row.lastReason ?? ''}</span> },
        { name: words.tasks.accepted, cell: row => <Time at={row.createdAt} /> },
        { name: words.downstreams.lastAttempt, cell: row => <Time at={row.lastAttemptAt} /> }
      ]}
    />
  )
}

/** Counts the deliveries before the question, which names them as `about`, or by the filter. The confirmed redelivery uses the same filter. */
export function askRedeliver(
  filter: Record<string, string>,
  about?: { title: string; line: string }
): Promise<void> {
  const words = texts.value.failures
  const counted = async () => {
    const { matched } = await post<{ matched: Count }>('/tasks/redeliver', { filter, dryRun: true })
    const isUnknown = isUncounted(matched)
    return {
      title: about ? texts.value.common.labelled(words.redeliver, about.title) : words.redeliver,
      text: (
        <>
          <p class="line">{about ? about.line : filterText(filter)}</p>
          <p>
            <b>{isUnknown ? words.uncounted(number(sumOf([matched]).n)) : words.count(matched)}</b>
          </p>
          <p class="quiet">{words.pace}</p>
        </>
      ),
      confirm: isUnknown ? texts.value.tasks.redeliverAll : words.start(matched),
      run: async (_: string, isOpen: () => boolean) => {
        const { id } = await post<Operation>('/tasks/redeliver', { filter })
        if (isOpen()) go(`/ui/operation${query({ id })}`)
      }
    }
  }
  return askLater(counted())
}

function GroupCard({
  group,
  isOfAllTimes,
  reload
}: {
  group: Group
  isOfAllTimes: boolean
  reload: () => Promise<void>
}) {
  const words = texts.value.failures
  const {
    fingerprint,
    downstream,
    reason,
    status,
    line,
    failed,
    failures,
    again,
    firstAt,
    lastAt,
    histogram,
    example,
    archived,
    mayArchive
  } = group
  const why = texts.value.reason[reason] ?? reason
  const mayRedeliver = may('ops:write') && failed > 0
  const title = `${downstream} ${why}`
  const isCounting = useRef(false)
  const redeliver = async (): Promise<void> => {
    if (isCounting.current) return
    isCounting.current = true
    const cause = { title, line: [status, line].filter(Boolean).join(' · ') }
    await askRedeliver({ downstream, fingerprint }, cause).finally(() => {
      isCounting.current = false
    })
  }
  const tasks = `/ui/failures${query({ span: isOfAllTimes ? 'all' : '30d', downstream, fingerprint, archived: archived ? 'true' : undefined })}`
  return (
    <li
      class="card group row"
      aria-label={title}
      tabIndex={0}
      onKeyDown={event => {
        if (event.target !== event.currentTarget) return
        if (event.key === 'Enter') go(tasks)
        if (event.key === 'r' && mayRedeliver) {
          event.preventDefault()
          event.stopPropagation()
          redeliver().catch((error: Error) => say(error.message, true))
        }
      }}
    >
      <div class={failed === 0 ? 'count none' : 'count'}>
        <strong>{number(failed)}</strong>
        <span>{words.failed}</span>
      </div>
      <div class="what">
        <p>
          <b>{downstream}</b> <span class="mark failed">{why}</span>
          {status === undefined ? null : <span class="mark">{status}</span>}
          {again === 0 ? null : <span class="mark again">{words.again(again)}</span>}
        </p>
        {line === undefined ? null : <p class="line">{line}</p>}
        <p class="quiet">
          {words.times(number(failures))} · {words.first} <Time at={firstAt} /> · {words.last}{' '}
          <Time at={lastAt} />
        </p>
        {example.taskNo === '' ? null : (
          <p class="quiet">
            {texts.value.common.labelled(words.example, '')}
            <Link to={taskPath(example.taskNo)}>{example.taskNo}</Link>
          </p>
        )}
        {example.answer === undefined ? null : (
          <details>
            <summary>{texts.value.task.answer}</summary>
            <pre tabIndex={0}>{example.answer}</pre>
          </details>
        )}
        {archived ? (
          <p class="quiet">
            {words.archived} <Time at={archived.at} /> {archived.by}: {archived.note}
          </p>
        ) : null}
      </div>
      {/* All of its steps but the last would be empty: they begin in 1970. */}
      {isOfAllTimes ? null : (
        <Spark values={histogram} label={words.times(number(failures))} color="failed" />
      )}
      <div class="acts">
        {mayRedeliver ? (
          <Act kind="main" run={redeliver} label={texts.value.common.labelled(words.redeliver, title)}>
            {words.redeliver}
          </Act>
        ) : null}
        <Link class="button" to={tasks}>
          {words.show}
        </Link>
        {mayArchive && !archived ? (
          <AskAct
            name={words.archive}
            about={title}
            sure={words.sureArchive}
            field={texts.value.common.note}
            run={note => post(`/failures/${fingerprint}/archive`, { note }).then(reload)}
          />
        ) : null}
      </div>
    </li>
  )
}
