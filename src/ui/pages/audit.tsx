import { useState } from 'preact/hooks'
import { get, query } from '../api.ts'
import { More } from '../acts.tsx'
import { Heading, Link, Shown, Table, taskPath, Time } from '../parts.tsx'
import type { AuditRow } from '../shapes.ts'
import { texts, useLoaded } from '../state.ts'

interface Page {
  audit: AuditRow[]
  nextCursor?: string
}
const read = (cursor?: string): Promise<Page> => get<Page>(`/audit${query({ cursor, limit: 100 })}`)

export function AuditPage() {
  const words = texts.value.audit
  const loaded = useLoaded('audit', () => read(), { kinds: ['audit'] })
  const [more, setMore] = useState<Page>()
  return (
    <>
      <Heading title={texts.value.pages['audit'] ?? ''} />
      <Shown loaded={loaded}>
        {first => (
          <>
            <Table
              label={texts.value.pages['audit'] ?? ''}
              rows={[...first.audit, ...(more?.audit ?? [])]}
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
            <More
              next={(more ?? first).nextCursor}
              load={async cursor => {
                const next = await read(cursor)
                setMore({ ...next, audit: [...(more?.audit ?? []), ...next.audit] })
              }}
            />
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
