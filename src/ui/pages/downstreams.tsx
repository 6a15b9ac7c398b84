import { get, patch, post, query } from '../api.ts'
import { Spark } from '../chart.tsx'
import { ask, Act, AskAct } from '../acts.tsx'
import { countText, sumOf, type Count } from '../counts.ts'
import { clock, Heading, Link, ms, Shown, Table, taskPath, Time } from '../parts.tsx'
import type { Delivery, Downstream, Failures, Stats } from '../shapes.ts'
import { useLoaded } from '../loaded.ts'
import { may, texts } from '../state.ts'
import { isFailing, slots } from '../verdict.ts'

interface LastError {
  text: string
  at: string
  taskNo: string
}
interface Row extends Downstream {
  /** The counts of the last hour, in steps of five minutes. */
  attempts: number[]
  failedAttempts: number[]
  p99Ms: number | undefined
  isFailing: boolean
  lastError: LastError | undefined
}

/** For more downstreams it would take too long. More at once would go over the limit of a key. */
const mostAsked = 10
const askedAtOnce = 3

async function read(): Promise<Row[]> {
  const [{ downstreams }, stats, failures] = await Promise.all([
    get<{ downstreams: Downstream[] }>('/downstreams'),
    get<Stats>(`/stats${query({ by: 'downstream', step: 300 })}`),
    get<Failures>(`/failures${query({ limit: 200 })}`)
  ])
  const rows = downstreams.map((one): Row => ({
    ...one,
    attempts: slots(stats, one.name, 'attempts'),
    failedAttempts: slots(stats, one.name, 'failedAttempts'),
    p99Ms: stats.series.find(({ downstream }) => downstream === one.name)?.total.p99Ms,
    isFailing: isFailing(stats, one.name),
    lastError: newest(errorsOf(failures, one.name))
  }))
  // The failures of another downstream may have left no room.
  const isCut = (row: Row): boolean =>
    failures.partial === true && row.lastError === undefined && sumOf([row.failed]).n > 0
  const asked = rows.filter(row => row.isFailing || isCut(row)).slice(0, mostAsked)
  for (let at = 0; at < asked.length; at += askedAtOnce)
    await Promise.all(
      asked.slice(at, at + askedAtOnce).map(async row => {
        // Without it the rest of the page is still worth showing.
        row.lastError = await askLastError(row, isCut(row)).catch(() => row.lastError)
      })
    )
  return rows
}

/** The errors of deliveries that FAILED in the last 24 hours. */
const errorsOf = ({ failures }: Failures, name: string): LastError[] =>
  failures
    .filter(group => group.downstream === name)
    .map(({ lastAt, status, line, reason, example }) => ({
      text: [status, line ?? texts.value.reason[reason] ?? reason].filter(Boolean).join(' · '),
      at: lastAt,
      taskNo: example.taskNo
    }))

const newest = (errors: readonly LastError[]): LastError | undefined =>
  errors.toSorted((a, b) => Date.parse(b.at) - Date.parse(a.at))[0]

/** The latest error: of a delivery that FAILED, or of one that waits for its next attempt. */
async function askLastError(
  { name, isFailing, lastError }: Row,
  isCut: boolean
): Promise<LastError | undefined> {
  const errors = lastError ? [lastError] : []
  if (isCut)
    errors.push(...errorsOf(await get<Failures>(`/failures${query({ downstream: name, limit: 200 })}`), name))
  if (isFailing) {
    // The newest may not have been tried yet.
    const waits = query({ downstream: name, phase: 'WAITING', status: 'SENDING', limit: 50 })
    const { deliveries } = await get<{ deliveries: (Delivery & { taskNo: string })[] }>(`/deliveries${waits}`)
    for (const { lastReason, lastAttemptAt, taskNo } of deliveries)
      if (lastReason !== undefined && lastAttemptAt !== undefined)
        errors.push({ text: lastReason, at: lastAttemptAt, taskNo })
  }
  return newest(errors)
}

export function DownstreamsPage() {
  const words = texts.value.downstreams
  const loaded = useLoaded('downstreams', read, { kinds: ['audit', 'failure'], everyMs: 15_000 })
  const count = (of: Count, to: string) =>
    sumOf([of]).n === 0 ? <span class="quiet">0</span> : <Link to={to}>{countText(of)}</Link>
  return (
    <>
      <Heading title={texts.value.pages.downstreams} />
      <Shown loaded={loaded}>
        {rows => (
          <Table
            label={texts.value.pages.downstreams}
            rows={rows}
            keyOf={row => row.name}
            columns={[
              {
                name: words.name,
                head: true,
                cell: row => (
                  <>
                    <b>{row.name}</b> <span class="quiet">{limitsOf(row)}</span>
                    <LastError of={row.lastError} />
                  </>
                )
              },
              {
                name: words.state,
                cell: row =>
                  row.pausedAt === undefined ? (
                    row.isFailing ? (
                      <span class="mark failed">{words.failing}</span>
                    ) : (
                      <span class="mark handled">{words.open}</span>
                    )
                  ) : (
                    <>
                      <span class="mark failed">{words.paused}</span>{' '}
                      <span class="quiet">{words.pausedBy(row.pausedBy ?? '?', clock(row.pausedAt))}</span>
                    </>
                  )
              },
              {
                name: words.waiting,
                right: true,
                cell: row =>
                  count(row.waiting, `/ui/tasks${query({ q: `status:SENDING downstream:${row.name}` })}`)
              },
              {
                name: words.oldestDue,
                cell: row => <Time at={row.oldestDueAt} />
              },
              { name: words.inFlight, right: true, cell: row => countText(row.inFlight) },
              { name: words.receipts, right: true, cell: row => countText(row.awaitingReceipt) },
              { name: words.blocked, right: true, cell: row => countText(row.blocked) },
              {
                name: words.failed,
                right: true,
                cell: row => count(row.failed, `/ui/failures${query({ downstream: row.name, span: 'all' })}`)
              },
              {
                name: words.hour,
                cell: row => (
                  <>
                    <Spark values={row.attempts} label={`${row.attempts.reduce((a, b) => a + b, 0)}`} />
                    <Spark
                      values={row.failedAttempts}
                      label={`${row.failedAttempts.reduce((a, b) => a + b, 0)} ${words.failed}`}
                      color="failed"
                    />
                  </>
                )
              },
              { name: words.p99, right: true, cell: row => ms(row.p99Ms) },
              {
                name: ' ',
                cell: row => (
                  <div class="acts">
                    {row.mayChange ? (
                      <>
                        <Switch row={row} reload={loaded.reload} />
                        <Limits row={row} reload={loaded.reload} />
                      </>
                    ) : null}
                    {may('tasks:write') ? (
                      <Link class="button" to={`/ui/test${query({ downstream: row.name })}`}>
                        {words.test}
                      </Link>
                    ) : null}
                  </div>
                )
              }
            ]}
          />
        )}
      </Shown>
    </>
  )
}

const limitsOf = ({ concurrency, perSecond }: Row): string =>
  [
    concurrency === undefined ? '' : texts.value.downstreams.atOnce(concurrency),
    perSecond === undefined ? '' : texts.value.downstreams.aSecond(perSecond)
  ]
    .filter(Boolean)
    .join(' ')

function LastError({ of }: { of: Row['lastError'] }) {
  if (of === undefined) return null
  return (
    <p class="error" title={texts.value.downstreams.lastError}>
      <Link to={taskPath(of.taskNo)} class="line">
        {of.text.length > 120 ? `${of.text.slice(0, 120)}…` : of.text}
      </Link>{' '}
      <span class="quiet">{clock(of.at)}</span>
    </p>
  )
}

function Switch({ row, reload }: { row: Row; reload: () => Promise<void> }) {
  const words = texts.value.downstreams
  const path = `/downstreams/${encodeURIComponent(row.name)}`
  if (row.pausedAt !== undefined)
    return (
      <Act
        kind="main"
        label={texts.value.common.labelled(words.resume, row.name)}
        run={() => post(`${path}/resume`).then(reload)}
      >
        {words.resume}
      </Act>
    )
  return (
    <AskAct
      name={words.pause}
      about={row.name}
      sure={words.surePause}
      run={() => post(`${path}/pause`).then(reload)}
    />
  )
}

/** An empty field removes the limit that was set. Then the handler's limit is in force. */
function Limits({ row, reload }: { row: Row; reload: () => Promise<void> }) {
  const words = texts.value.downstreams
  const title = texts.value.common.labelled(words.changeLimits, row.name)
  const change = (): void => {
    const given: Partial<Record<'concurrency' | 'perSecond', string>> = {}
    const field = (name: 'concurrency' | 'perSecond', most: number) => (
      <label class="field">
        {words[name]}
        <input
          name={name}
          type="number"
          min={1}
          max={most}
          defaultValue={row[name]}
          onInput={event => {
            given[name] = event.currentTarget.value
          }}
        />
      </label>
    )
    ask({
      title,
      text: (
        <>
          <p>{words.limitsHold}</p>
          {field('concurrency', 100_000)}
          {field('perSecond', 1_000_000)}
        </>
      ),
      confirm: words.changeLimits,
      run: async () => {
        const limits = Object.fromEntries(
          Object.entries(given).map(([name, text]) => [name, text === '' ? null : Number(text)])
        )
        if (Object.keys(limits).length > 0)
          await patch(`/downstreams/${encodeURIComponent(row.name)}`, limits)
        await reload()
      }
    })
  }
  return (
    <button type="button" aria-label={title} onClick={change}>
      {words.changeLimits}
    </button>
  )
}
