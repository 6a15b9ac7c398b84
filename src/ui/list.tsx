// A list of the API on a page, with a button for more rows.
import { get, query } from './api.ts'
import { More } from './acts.tsx'
import { Link, Shown, Table, taskPath, type Column } from './parts.tsx'
import type { AskPage } from './reader.ts'
import type { LoadedList } from './loaded.ts'
import { texts } from './state.ts'

type Page<Name extends string, Row> = { [name in Name]: Row[] } & { nextCursor?: string; partial?: true }
/** Reads the pages of a list. `name` is the member of the answer with the rows. */
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

/** The list of a page that already shows a title. */
export function Rows<Row>({ title, loaded, ...table }: ListProps<Row>) {
  return (
    <Shown loaded={loaded}>
      {({ rows, nextCursor }) => (
        <>
          {rows.length === 0 && nextCursor !== undefined ? null : (
            <Table label={title} rows={rows} {...table} />
          )}
          <More key={loaded.key} of={loaded} />
        </>
      )}
    </Shown>
  )
}

/** The column with the task of a row, as a link to its page. */
export const taskColumn = <Row extends { taskNo: string }>(): Column<Row> => ({
  name: texts.value.tasks.task,
  head: true,
  cell: row => <Link to={taskPath(row.taskNo)}>{row.taskNo}</Link>
})
