import { get, query } from '../api.ts'
import { More } from '../acts.tsx'
import { Shown, Table, type Column } from '../parts.tsx'
import type { AskPage } from '../reader.ts'
import type { Change, LoadedList } from '../state.ts'

type Page<Name extends string, Row> = { [name in Name]: Row[] } & { nextCursor?: string; partial?: true }
/** A list of everything, however old. */
export const listOf =
  <Name extends string, Row>(
    name: Name,
    path: string,
    filter: Record<string, string | boolean>
  ): AskPage<Row> =>
  async (cursor, limit) => {
    const { [name]: rows, ...next } = await get<Page<Name, Row>>(
      `${path}${query({ ...filter, cursor, limit })}`
    )
    return { rows, ...next }
  }
export const from = new Date(0).toISOString()
export const often = { kinds: ['audit', 'failure'] satisfies Change['kind'][], everyMs: 30_000 }

export function List<Row>({
  title,
  loaded,
  ...table
}: {
  title: string
  loaded: LoadedList<Row>
  keyOf: (row: Row) => string
  open?: (row: Row) => void
  columns: Column<Row>[]
}) {
  return (
    <section>
      <h2>{title}</h2>
      <Shown loaded={loaded}>
        {({ rows, nextCursor }) => (
          <>
            {rows.length === 0 && nextCursor !== undefined ? null : (
              <Table label={title} rows={rows} {...table} />
            )}
            <More of={loaded} />
          </>
        )}
      </Shown>
    </section>
  )
}
