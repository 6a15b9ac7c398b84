import { get, patch, post, query } from '../api.ts'
import { Spark } from '../chart.tsx'
import { ask, Act } from '../acts.tsx'
import { clock, Heading, Link, ms, number, Shown, Table, Time } from '../parts.tsx'
import type { Downstream, Stats } from '../shapes.ts'
import { may, texts, useLoaded } from '../state.ts'

interface Row extends Downstream {
  /** By five minutes, of the last hour. */
  attempts: number[]
  failedAttempts: number[]
  p99Ms: number | undefined
}

async function read(): Promise<Row[]> {
  const [{ downstreams }, stats] = await Promise.all([
    get<{ downstreams: Downstream[] }>('/downstreams'),
    get<Stats>(`/stats${query({ by: 'downstream', step: 300 })}`)
  ])
  return downstreams.map(one => {
    const series = stats.series.find(({ downstream }) => downstream === one.name)
    const from = Math.floor(Date.parse(stats.from) / 300_000) * 300_000
    const slots = (name: 'attempts' | 'failedAttempts'): number[] =>
      Array.from(
        { length: 13 },
        (_, at) => series?.points.find(point => Date.parse(point.at) === from + at * 300_000)?.[name] ?? 0
      )
    return {
      ...one,
      attempts: slots('attempts'),
      failedAttempts: slots('failedAttempts'),
      p99Ms: series?.total.p99Ms
    }
  })
}

export function DownstreamsPage() {
  const words = texts.value.downstreams
  const loaded = useLoaded('downstreams', read, { kinds: ['audit', 'failure'], everyMs: 15_000 })
  const count = (n: number, q: string) =>
    n === 0 ? <span class="quiet">0</span> : <Link to={`/ui/tasks${query({ q })}`}>{number(n)}</Link>
  return (
    <>
      <Heading title={texts.value.pages['downstreams'] ?? ''} />
      <Shown loaded={loaded}>
        {rows => (
          <Table
            label={texts.value.pages['downstreams'] ?? ''}
            rows={rows}
            keyOf={row => row.name}
            columns={[
              { name: words.name, head: true, cell: row => <b>{row.name}</b> },
              {
                name: words.state,
                cell: row =>
                  row.pausedAt === undefined ? (
                    <span class="mark handled">{words.open}</span>
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
                cell: row => count(row.waiting, `status:SENDING downstream:${row.name} from:30d`)
              },
              {
                name: words.oldestDue,
                cell: row => <Time at={row.oldestDueAt} />
              },
              { name: words.inFlight, right: true, cell: row => number(row.inFlight) },
              { name: words.receipts, right: true, cell: row => number(row.awaitingReceipt) },
              { name: words.blocked, right: true, cell: row => number(row.blocked) },
              {
                name: words.failed,
                right: true,
                cell: row =>
                  row.failed === 0 ? (
                    <span class="quiet">0</span>
                  ) : (
                    <Link to={`/ui/failures${query({ downstream: row.name, span: '30d' })}`}>
                      {number(row.failed)}
                    </Link>
                  )
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
                name: words.limits,
                cell: row => (
                  <span class="quiet">
                    {row.concurrency === undefined ? '' : `${row.concurrency} ×`}{' '}
                    {row.perSecond === undefined ? '' : `${row.perSecond} / s`}
                  </span>
                )
              },
              {
                name: ' ',
                cell: row =>
                  may('ops:write') ? (
                    <div class="acts">
                      <Switch row={row} reload={loaded.reload} />
                      <Limits row={row} reload={loaded.reload} />
                    </div>
                  ) : null
              }
            ]}
          />
        )}
      </Shown>
    </>
  )
}

function Switch({ row, reload }: { row: Row; reload: () => void }) {
  const words = texts.value.downstreams
  const path = `/downstreams/${encodeURIComponent(row.name)}`
  if (row.pausedAt !== undefined)
    return (
      <Act kind="main" label={`${words.resume}: ${row.name}`} run={() => post(`${path}/resume`).then(reload)}>
        {words.resume}
      </Act>
    )
  return (
    <button
      type="button"
      aria-label={`${words.pause}: ${row.name}`}
      onClick={() =>
        ask({
          title: `${words.pause}: ${row.name}`,
          text: <p>{words.surePause}</p>,
          confirm: words.pause,
          run: async () => {
            await post(`${path}/pause`)
            reload()
          }
        })
      }
    >
      {words.pause}
    </button>
  )
}

/** An empty field takes away what was set: then the handler's limit holds. */
function Limits({ row, reload }: { row: Row; reload: () => void }) {
  const words = texts.value.downstreams
  const title = `${words.changeLimits}: ${row.name}`
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
        reload()
      }
    })
  }
  return (
    <button type="button" aria-label={title} onClick={change}>
      {words.changeLimits}
    </button>
  )
}
