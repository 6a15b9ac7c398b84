import { get } from '../api.ts'
import { Heading, Shown, Table, Time } from '../parts.tsx'
import type { Node } from '../shapes.ts'
import { useLoaded } from '../loaded.ts'
import { texts } from '../state.ts'

export function NodesPage() {
  const words = texts.value.nodes
  const loaded = useLoaded('nodes', () => get<{ nodes: Node[] }>('/nodes'), { everyMs: 10_000 })
  return (
    <>
      <Heading title={texts.value.pages.nodes} />
      <Shown loaded={loaded}>
        {({ nodes }) => (
          <Table
            label={texts.value.pages.nodes}
            rows={nodes}
            keyOf={row => row.id}
            columns={[
              { name: words.node, head: true, cell: row => <b>{row.id}</b> },
              {
                name: texts.value.tasks.status,
                cell: row => (
                  <span class={`mark ${row.live ? 'handled' : 'failed'}`}>
                    {row.live ? words.alive : words.silent}
                  </span>
                )
              },
              { name: words.roles, cell: row => row.roles.join(', ') },
              { name: words.version, cell: row => row.version },
              { name: words.started, cell: row => <Time at={row.startedAt} /> },
              { name: words.seen, cell: row => <Time at={row.seenAt} /> },
              {
                name: words.yielded,
                cell: row => row.yielded.map(one => `${one.downstream}: ${one.reason}`).join(', ')
              }
            ]}
          />
        )}
      </Shown>
    </>
  )
}
