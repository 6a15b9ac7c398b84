import { query } from '../api.ts'
import { Heading, Link, taskPath, Time } from '../parts.tsx'
import { listOf, Rows } from '../list.tsx'
import type { AuditRow } from '../shapes.ts'
import { useList } from '../loaded.ts'
import { texts } from '../state.ts'

export function AuditPage() {
  const words = texts.value.audit
  const loaded = useList('audit', listOf<'audit', AuditRow>('audit', '/audit'), {
    kinds: ['audit'],
    size: 100
  })
  return (
    <>
      <Heading title={texts.value.pages.audit} />
      <Rows
        title={texts.value.pages.audit}
        loaded={loaded}
        keyOf={row => row.id}
        columns={[
          { name: words.at, cell: row => <Time at={row.at} /> },
          { name: words.what, head: true, cell: row => <b>{row.what}</b> },
          {
            name: words.who,
            cell: row => (
              <>
                {row.who} {row.keyId === undefined ? null : <span class="quiet">{row.keyId}</span>}
              </>
            )
          },
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
