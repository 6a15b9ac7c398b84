import { post, query } from '../api.ts'
import { Act } from '../acts.tsx'
import { Choice, Heading, Link, taskPath, Time } from '../parts.tsx'
import { listOf, Rows } from '../list.tsx'
import { canResolve, type Alarm } from '../shapes.ts'
import { useList } from '../loaded.ts'
import { go, may, now, param, texts } from '../state.ts'

export function AlarmsPage() {
  const words = texts.value
  const isAll = param('all') === 'true'
  const kind = param('kind')
  const downstream = param('downstream')
  const to = (changed: Record<string, string | undefined>): string =>
    `/ui/alarms${query({ all: isAll ? 'true' : undefined, kind, downstream, ...changed })}`
  const loaded = useList(
    `alarms ${isAll} ${kind} ${downstream}`,
    (cursor, limit) => {
      const from = new Date(now.value.getTime() - 30 * 86_400_000).toISOString()
      // What is open is listed whatever its age.
      const filter = { kind, downstream, ...(isAll ? { from } : { open: true }) }
      return listOf<'alarms', Alarm>('alarms', '/alarms', filter)(cursor, limit)
    },
    { kinds: ['failure', 'audit'], everyMs: 30_000, size: 100 }
  )
  return (
    <>
      <Heading title={words.pages.alarms}>
        <Choice
          label={words.alarms.kind}
          values={['open', 'all'] as const}
          value={isAll ? 'all' : 'open'}
          choose={one => go(to({ all: one === 'all' ? 'true' : undefined }))}
          nameOf={one => (one === 'all' ? words.alarms.all : words.alarms.onlyOpen)}
        />
      </Heading>
      {kind === '' && downstream === '' ? null : (
        <p class="quiet">
          {kind === '' ? null : <Link to={to({ kind: undefined })}>{kind} ✕</Link>}{' '}
          {downstream === '' ? null : <Link to={to({ downstream: undefined })}>{downstream} ✕</Link>}
        </p>
      )}
      <Rows
        title={words.pages.alarms}
        loaded={loaded}
        keyOf={row => `${row.taskNo} ${row.downstream} ${row.attempt} ${row.kind}`}
        columns={[
          {
            name: words.alarms.kind,
            head: true,
            cell: row => <span class="mark failed">{row.kind}</span>
          },
          { name: words.downstreams.name, cell: row => row.downstream },
          {
            name: words.tasks.task,
            cell: row =>
              row.status === undefined ? row.taskNo : <Link to={taskPath(row.taskNo)}>{row.taskNo}</Link>
          },
          {
            name: words.common.reason,
            cell: row => <span class="line">{words.reason[row.reason ?? ''] ?? row.reason ?? ''}</span>
          },
          { name: words.alarms.raised, cell: row => <Time at={row.createdAt} /> },
          { name: words.alarms.sent, cell: row => <Time at={row.sentAt} ago={false} /> },
          {
            name: words.alarms.resolved,
            cell: row =>
              row.kind === 'REJECTED' ? (
                // This alarm ends with its rejected row.
                <Link to="/ui/held">{words.pages.held}</Link>
              ) : canResolve(row) && may('ops:write') ? (
                <Act
                  run={() => {
                    const { taskNo, downstream, attempt, kind } = row
                    return post('/alarms/resolve', { taskNo, downstream, attempt, kind }).then(loaded.reload)
                  }}
                >
                  {words.alarms.resolve}
                </Act>
              ) : (
                <Time at={row.resolvedAt} ago={false} />
              )
          }
        ]}
      />
    </>
  )
}
