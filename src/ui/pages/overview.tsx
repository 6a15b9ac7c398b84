import { get, query } from '../api.ts'
import { Chart } from '../chart.tsx'
import { Choice, Heading, Link, ms, number, Shown } from '../parts.tsx'
import type { Alarm, Downstream, Group, Point, Stats } from '../shapes.ts'
import { go, now, param, texts, useLoaded } from '../state.ts'

const spans = { '1h': 3_600, '6h': 21_600, '1d': 86_400, '7d': 604_800, '30d': 2_592_000 }
type Span = keyof typeof spans

interface Read {
  stats: Stats
  downstreams: Downstream[]
  failures: Group[]
  alarms: Alarm[]
  held: { keys: object[]; nextCursor?: string }
}

export function OverviewPage() {
  const span: Span = param('span') in spans ? (param('span') as Span) : '1h'
  const words = texts.value.overview
  const loaded = useLoaded(
    `overview ${span}`,
    async (): Promise<Read> => {
      const to = now.value
      const from = new Date(to.getTime() - spans[span] * 1000).toISOString()
      const [stats, { downstreams }, { failures }, { alarms }, held] = await Promise.all([
        get<Stats>(`/stats${query({ from, to: to.toISOString() })}`),
        get<{ downstreams: Downstream[] }>('/downstreams'),
        get<{ failures: Group[] }>(`/failures${query({ from, limit: 5 })}`),
        get<{ alarms: Alarm[] }>(`/alarms${query({ open: true, from, limit: 50 })}`),
        get<Read['held']>(`/keys${query({ held: true, limit: 200 })}`)
      ])
      return { stats, downstreams, failures, alarms, held }
    },
    { kinds: ['failure', 'audit'], everyMs: 10_000 }
  )
  return (
    <>
      <Heading title={texts.value.pages['overview'] ?? ''}>
        <Choice
          label={texts.value.failures.span}
          values={Object.keys(spans) as Span[]}
          value={span}
          choose={one => go(`/ui/overview?span=${one}`)}
          nameOf={one => words.span[one] ?? one}
        />
      </Heading>
      <Shown loaded={loaded}>{read => <Board {...read} seconds={spans[span]} />}</Shown>
    </>
  )
}

const share = (part: number, whole: number): string =>
  whole === 0 ? '–' : `${((part / whole) * 100).toFixed(part === whole ? 0 : 2)} %`

function Board({ stats, downstreams, failures, alarms, held, seconds }: Read & { seconds: number }) {
  const words = texts.value.overview
  const [series] = stats.series
  const points = filled(stats, series?.points ?? [])
  const total = series?.total
  const times = points.map(point => Date.parse(point.at) / 1000)
  const perMinute = (name: 'accepted' | 'handled' | 'failed'): number[] =>
    points.map(point => (point[name] / stats.step) * 60)
  const failed = downstreams.reduce((sum, one) => sum + one.failed, 0)
  // Of one that is paused it says nothing new.
  const due = downstreams.filter(one => one.pausedAt === undefined && one.oldestDueAt !== undefined)
  const [oldest] = due.toSorted((a, b) => Date.parse(a.oldestDueAt ?? '') - Date.parse(b.oldestDueAt ?? ''))
  return (
    <>
      <dl class="numbers">
        <Number
          name={words.accepted}
          value={number(total?.accepted ?? 0)}
          more={`${((total?.accepted ?? 0) / seconds).toFixed(1)} ${words.perSecond}`}
        />
        <Number
          name={words.handled}
          value={number(total?.handled ?? 0)}
          more={`${((total?.handled ?? 0) / seconds).toFixed(1)} ${words.perSecond}`}
        />
        <Number
          name={words.failed}
          value={number(failed)}
          more={`+${number(total?.failed ?? 0)}`}
          wrong={failed > 0}
        />
        <Number
          name={words.held}
          value={held.nextCursor === undefined ? number(held.keys.length) : `${held.keys.length}+`}
          wrong={held.keys.length > 0}
          to="/ui/held"
        />
        <Number
          name={words.oldest}
          value={oldest ? ms(now.value.getTime() - Date.parse(oldest.oldestDueAt ?? '')) : '–'}
          {...(oldest ? { more: oldest.name } : {})}
          to="/ui/downstreams"
        />
        <Number name={words.direct} value={share(total?.direct ?? 0, total?.handled ?? 0)} />
        <Number
          name={words.exhausted}
          value={share(total?.exhausted ?? 0, (total?.handled ?? 0) + (total?.failed ?? 0))}
        />
        <Number name={words.p50} value={ms(total?.p50Ms)} />
        <Number name={words.p99} value={ms(total?.p99Ms)} />
      </dl>
      <Wrong downstreams={downstreams} failures={failures} alarms={alarms} />
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
  handled: 0,
  direct: 0,
  failed: 0,
  exhausted: 0
}
/** Minutes in which nothing happened are zero, not missing. */
function filled({ from, to, step }: Stats, points: readonly Point[]): Point[] {
  const known = new Map(points.map(point => [Date.parse(point.at), point]))
  const all: Point[] = []
  for (let at = Math.ceil(Date.parse(from) / 1000 / step) * step; at * 1000 < Date.parse(to); at += step)
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

function Wrong({ downstreams, failures, alarms }: Pick<Read, 'downstreams' | 'failures' | 'alarms'>) {
  const words = texts.value.overview
  const paused = downstreams.filter(one => one.pausedAt !== undefined)
  const failing = failures.filter(one => one.failed > 0)
  const others = alarms.filter(one => one.kind !== 'FAILED')
  if (paused.length + failing.length + others.length === 0) return <p class="good">{words.fine}</p>
  return (
    <section class="card failed">
      <h2>{words.wrong}</h2>
      <ul class="plain">
        {paused.map(one => (
          <li key={one.name}>
            <Link to="/ui/downstreams">{words.paused(one.name)}</Link>
          </li>
        ))}
        {failing.map(one => (
          <li key={one.fingerprint}>
            <Link to={`/ui/failures${query({ downstream: one.downstream })}`}>
              <b>{one.downstream}</b> {words.failing(one.failed)}
            </Link>{' '}
            <span class="line">
              {[texts.value.reason[one.reason] ?? one.reason, one.status, one.line]
                .filter(Boolean)
                .join(' · ')}
            </span>
          </li>
        ))}
        {others.slice(0, 5).map(one => (
          <li key={`${one.taskNo} ${one.downstream} ${one.kind}`}>
            <Link to="/ui/alarms">
              {one.kind} {one.downstream} {one.taskNo}
            </Link>
          </li>
        ))}
      </ul>
    </section>
  )
}
