import { get, query } from '../api.ts'
import { coveredMs, ratePerMinute } from '../rates.ts'
import { Chart } from '../chart.tsx'
import { sumOf, sumText } from '../counts.ts'
import { clock, Heading, Link, ms, number, Shown, SpanChoice, spanNames, spanOr, spans } from '../parts.tsx'
import type { Point, Stats } from '../shapes.ts'
import { useLoaded } from '../loaded.ts'
import { go, now, texts } from '../state.ts'
import { verdict, type VerdictFacts, type Wrong } from '../verdict.ts'

interface Read {
  at: Date
  stats: Stats
  evidence: VerdictFacts
}

/** Reads the facts for the current problems, independent of the time span of the chart. */
async function readEvidence(to: Date): Promise<VerdictFacts> {
  const from = new Date(to.getTime() - spans['30d'] * 1000).toISOString()
  const [{ downstreams }, lately, { failures }, alarms, held, { nodes }] = await Promise.all([
    get<Pick<VerdictFacts, 'downstreams'>>('/downstreams'),
    get<Stats>(`/stats${query({ by: 'downstream', step: 300 })}`),
    get<Pick<VerdictFacts, 'failures'>>(`/failures${query({ from, limit: 5 })}`),
    get<VerdictFacts['alarms']>(`/alarms${query({ open: true, notKind: 'FAILED', limit: 50 })}`),
    get<VerdictFacts['held']>(`/keys${query({ held: true, limit: 200 })}`),
    get<Pick<VerdictFacts, 'nodes'>>('/nodes')
  ])
  return { downstreams, lately, failures, alarms, held, nodes }
}

export function OverviewPage() {
  const span = spanOr('1h')
  const loaded = useLoaded(
    `overview ${span}`,
    async (): Promise<Read> => {
      const to = now.value
      const from = new Date(to.getTime() - spans[span] * 1000).toISOString()
      const [stats, evidence] = await Promise.all([
        get<Stats>(`/stats${query({ from, to: to.toISOString() })}`),
        readEvidence(to)
      ])
      return { at: to, stats, evidence }
    },
    { kinds: ['failure', 'audit'], everyMs: 10_000 }
  )
  return (
    <>
      <Heading title={texts.value.pages.overview}>
        <SpanChoice values={spanNames} value={span} choose={one => go(`/ui/overview?span=${one}`)} />
      </Heading>
      <Shown loaded={loaded}>{read => <Board {...read} isOld={loaded.error !== undefined} />}</Shown>
    </>
  )
}

const share = (part: number, whole: number): string =>
  whole === 0 ? '–' : `${((part / whole) * 100).toFixed(part === whole ? 0 : 2)} %`

function Board({ at, stats, evidence, isOld }: Read & { isOld: boolean }) {
  const { downstreams, held } = evidence
  const words = texts.value.overview
  const [series] = stats.series
  const points = filled(stats, series?.points ?? [])
  const total = series?.total
  const times = points.map(point => Date.parse(point.at) / 1000)
  const perMinute = (name: 'accepted' | 'handled' | 'failed'): (number | null)[] =>
    points.map(point => ratePerMinute(point[name], coveredMs(stats, point, at)))
  const perSecond = (count: number): string => ((count * 1000) / coveredMs(stats, undefined, at)).toFixed(1)
  const failed = sumOf(downstreams.map(one => one.failed))
  // A paused downstream is already reported as paused.
  const due = downstreams.filter(one => one.pausedAt === undefined && one.oldestDueAt !== undefined)
  const [oldest] = due.toSorted((a, b) => Date.parse(a.oldestDueAt ?? '') - Date.parse(b.oldestDueAt ?? ''))
  return (
    <>
      <dl class="numbers">
        <Number
          name={words.accepted}
          value={number(total?.accepted ?? 0)}
          more={words.perSecond(perSecond(total?.accepted ?? 0))}
        />
        <Number
          name={words.handled}
          value={number(total?.handled ?? 0)}
          more={words.perSecond(perSecond(total?.handled ?? 0))}
        />
        <Number
          name={words.failed}
          value={sumText(failed)}
          more={`+${number(total?.failed ?? 0)}`}
          wrong={failed.n > 0}
          to="/ui/failures?span=all"
        />
        <Number
          name={words.held}
          value={sumText({ n: held.keys.length, isMore: held.nextCursor !== undefined })}
          wrong={held.keys.length > 0}
          to="/ui/held"
        />
        <Number
          name={words.oldest}
          value={oldest ? ms(now.value.getTime() - Date.parse(oldest.oldestDueAt ?? '')) : '–'}
          {...(oldest ? { more: oldest.name } : {})}
          to="/ui/downstreams"
        />
        <Number name={words.direct} value={share(total?.firstDelivered ?? 0, total?.firstTries ?? 0)} />
        <Number
          name={words.exhausted}
          value={share(total?.failedLater ?? 0, (total?.handled ?? 0) + (total?.failed ?? 0))}
        />
        <Number name={words.p50} value={ms(total?.p50Ms)} />
        <Number name={words.p99} value={ms(total?.p99Ms)} />
      </dl>
      {isOld ? <p class="quiet">{words.unread(clock(at.toISOString()))}</p> : null}
      <Verdict wrong={verdict(evidence, now.value)} isOld={isOld} />
      <Chart
        label={words.flow}
        times={times}
        unit={value => (value >= 10_000 ? `${value / 1000}k` : String(value))}
        lines={[
          { name: words.accepted, color: 'accent', values: perMinute('accepted') },
          { name: words.handled, color: 'handled', values: perMinute('handled') },
          { name: words.failed, color: 'failed', values: perMinute('failed') }
        ]}
      />
      <Chart
        label={words.latency}
        times={times}
        unit={value => ms(value)}
        lines={[
          { name: 'p50', color: 'accent', values: points.map(point => point.p50Ms ?? null) },
          { name: 'p99', color: 'warn', values: points.map(point => point.p99Ms ?? null) }
        ]}
      />
    </>
  )
}

const nothing = {
  accepted: 0,
  attempts: 0,
  failedAttempts: 0,
  firstTries: 0,
  firstDelivered: 0,
  handled: 0,
  direct: 0,
  failed: 0,
  failedLater: 0,
  exhausted: 0
}
/** Adds a point of zeros for each step without events. */
function filled({ from, to, step }: Stats, points: readonly Point[]): Point[] {
  const known = new Map(points.map(point => [Date.parse(point.at), point]))
  const all: Point[] = []
  for (let at = Math.floor(Date.parse(from) / 1000 / step) * step; at * 1000 < Date.parse(to); at += step)
    all.push(known.get(at * 1000) ?? { at: new Date(at * 1000).toISOString(), ...nothing })
  return all
}

function Number({
  name,
  value,
  more,
  wrong = false,
  to
}: {
  name: string
  value: string
  more?: string
  wrong?: boolean
  to?: string
}) {
  return (
    <div class={wrong ? 'wrong' : ''}>
      <dt>{name}</dt>
      <dd>
        {to === undefined ? value : <Link to={to}>{value}</Link>}
        {more === undefined ? null : <small>{more}</small>}
      </dd>
    </div>
  )
}

function Verdict({ wrong, isOld }: { wrong: readonly Wrong[]; isOld: boolean }) {
  const words = texts.value.overview
  if (wrong.length === 0) return isOld ? null : <p class="good">{words.fine}</p>
  return (
    <section class="card failed">
      <h2>{words.wrong}</h2>
      <ul class="plain">
        {wrong.map((one, at) => (
          <li key={at}>
            <Line of={one} />
          </li>
        ))}
      </ul>
    </section>
  )
}

function Line({ of }: { of: Wrong }) {
  const words = texts.value.overview
  switch (of.code) {
    case 'NO_WORKER':
      return <Link to="/ui/nodes">{words.noWorker}</Link>
    case 'NO_DISPATCHER':
      return <Link to="/ui/nodes">{words.noDispatcher}</Link>
    case 'FAILING':
      return <Link to="/ui/downstreams">{words.isFailing(of.downstream)}</Link>
    case 'FAILED':
      return <Link to="/ui/failures?span=all">{words.allFailed(of.count)}</Link>
    case 'GROUP': {
      const { downstream, failed, reason, status, line } = of.group
      return (
        <>
          <Link to={`/ui/failures${query({ downstream, span: '30d' })}`}>
            <b>{downstream}</b> {words.failing(failed)}
          </Link>{' '}
          <span class="line">
            {[texts.value.reason[reason] ?? reason, status, line].filter(Boolean).join(' · ')}
          </span>
        </>
      )
    }
    case 'HELD':
      return <Link to="/ui/held">{words.keysHeld(of.count)}</Link>
    case 'OVERDUE':
      return (
        <Link to="/ui/downstreams">
          {words.overdue(of.downstream, ms(now.value.getTime() - Date.parse(of.since)))}
        </Link>
      )
    case 'PAUSED':
      return <Link to="/ui/downstreams">{words.paused(of.downstream)}</Link>
    case 'ALARM':
      return (
        <Link to="/ui/alarms">
          {words.alarms([of.kind, of.downstream].filter(Boolean).join(' '), of.count)}
        </Link>
      )
  }
}
