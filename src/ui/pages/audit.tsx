import { get, query } from '../api.ts'
import { More } from '../acts.tsx'
import { Heading, Link, Shown, Table, taskPath, Time } from '../parts.tsx'
import type { AuditRow } from '../shapes.ts'
import { texts, useList } from '../state.ts'

interface Page {
  audit: AuditRow[]
  nextCursor?: string
}

export function AuditPage() {
  const words = texts.value.audit
  const loaded = useList(
    'audit',
    async (cursor, limit) => {
      const { audit, ...next } = await get<Page>(`/audit${query({ cursor, limit })}`)
      return { rows: audit, ...next }
    },
    { kinds: ['audit'], size: 100 }
  )
  return (
    <>
      <Heading title={texts.value.pages['audit'] ?? ''} />
      <Shown loaded={loaded}>
        {({ rows }) => (
          <>
            <Table
              label={texts.value.pages['audit'] ?? ''}
              rows={rows}
              keyOf={row => row.id}
              columns={[
                { name: words.at, cell: row => <Time at={row.at} /> },
                { name: words.what, head: true, cell: row => <b>{row.what}</b> },
                { name: words.who, cell: row => row.who },
                { name: words.target, cell: row => <Target row={row} /> },
                {
                  name: words.detail,
                  cell: row =>
                    row.detail === undefined || row.detail === null ? (
                      ''
                    ) : (
                      <code class="line">{JSON.stringify(row.detail)}</code>
                    )
                }
              ]}
            />
            <More of={loaded} />
          </>
        )}
      </Shown>
    </>
  )
}

function Target({ row: { what, target } }: { row: AuditRow }) {
  if (target === undefined) return null
  if (what === 'tasks.redeliver' || what.startsWith('operation.'))
    return <Link to={`/ui/operation${query({ id: target })}`}>{target}</Link>
  if (what.startsWith('task.') || what.startsWith('alarm.'))
    return <Link to={taskPath(target)}>{target}</Link>
  return <>{target}</>
}
