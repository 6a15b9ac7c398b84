// A list of the API on a page: its rows, and more of them.
import { get, query } from './api.ts'
import { More } from './acts.tsx'
import { Link, Shown, Table, taskPath, type Column } from './parts.tsx'
import type { AskPage } from './reader.ts'
import { texts, type LoadedList } from './state.ts'

/** `from` of what is looked for however old it is. */
export const epoch = new Date(0).toISOString()

type Page<Name extends string, Row> = { [name in Name]: Row[] } & { nextCursor?: string; partial?: true }
/** Asks for the pages of a list; `name` is the member of the answer that has the rows. */
export const listOf =
  <Name extends string, Row>(
    name: Name,
    path: string,
    filter: Record<string, string | boolean | undefined> = {}
  ): AskPage<Row> =>
  async (cursor, limit) => {
    const { [name]: rows, ...next } = await get<Page<Name, Row>>(
      `${path}${query({ ...filter, cursor, limit })}`
    )
    return { rows, ...next }
  }

interface ListProps<Row> {
  title: string
  loaded: LoadedList<Row>
  keyOf: (row: Row) => string
  open?: (row: Row) => void
  columns: Column<Row>[]
}

/** One of several lists of a page. */
export function List<Row>(props: ListProps<Row>) {
  return (
    <section>
      <h2>{props.title}</h2>
      <Rows {...props} />
    </section>
  )
}

/** The list of a page that has its title already. */
export function Rows<Row>({ title, loaded, ...table }: ListProps<Row>) {
  return (
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
  )
}

/** The task of a row, which leads to its page. */
export const taskColumn = <Row extends { taskNo: string }>(): Column<Row> => ({
  name: texts.value.tasks.task,
  head: true,
  cell: row => <Link to={taskPath(row.taskNo)}>{row.taskNo}</Link>
})
