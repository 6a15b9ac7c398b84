// The plan that PostgreSQL executes for one of our statements. The statement runs and is rolled back.
import type { Sql } from '../../src/db/pool.ts'

type Value = string | number | null | undefined
export interface Statement {
  text: string
  values: Value[]
}

/** The statement that a function would run: its text as PostgreSQL receives it, and its values. */
export async function capture(run: (sql: Sql) => Promise<unknown>): Promise<Statement> {
  let seen: Statement | undefined
  const stop = new Error('captured')
  const fake = (strings: TemplateStringsArray, ...parts: (Value | Fragment)[]) => {
    // Fragments are made before the statement that contains them: the last call is the whole statement.
    seen = written({ strings, parts })
    const refused = Promise.reject(stop)
    refused.catch(() => {})
    return Object.assign(refused, { strings, parts })
  }
  const unsafe = (text: string): Fragment => ({ strings: [text], parts: [] })
  await run(Object.assign(fake, { unsafe }) as unknown as Sql).catch((err: unknown) => {
    if (err !== stop) throw err
  })
  if (!seen) throw new Error('nothing was asked')
  return seen
}

interface Fragment {
  strings: readonly string[]
  parts: readonly (Value | Fragment)[]
}

function written({ strings, parts }: Fragment, values: Value[] = []): Statement {
  const text = parts.reduce<string>((before, part, n) => {
    if (typeof part === 'object' && part !== null) return before + written(part, values).text + strings[n + 1]
    values.push(part)
    return `${before}$${values.length}${strings[n + 1]}`
  }, strings[0] ?? '')
  return { text, values }
}

const literal = (value: Value): string => {
  if (value === null || value === undefined) return 'null'
  return typeof value === 'number' ? String(value) : `'${value.replaceAll("'", "''")}'`
}

export interface Node {
  'Node Type': string
  'Relation Name'?: string
  'Index Name'?: string
  'Actual Rows': number
  'Actual Loops': number
  'Rows Removed by Filter'?: number
  'Rows Removed by Index Recheck'?: number
  'Shared Hit Blocks': number
  'Shared Read Blocks': number
  Plans?: Node[]
}

const nodes = (node: Node): Node[] => [node, ...(node.Plans ?? []).flatMap(nodes)]

export async function explain(sql: Sql, name: string, statement: Statement): Promise<Node[]> {
  await sql.unsafe('begin')
  const values = statement.values.map(literal).join(', ')
  try {
    const [row] = await sql.unsafe<{ 'QUERY PLAN': [{ Plan: Node }] }[]>(
      `explain (analyze, buffers, format json) execute ${name} ${values && `(${values})`}`
    )
    if (!row) throw new Error('no plan')
    return nodes(row['QUERY PLAN'][0].Plan)
  } finally {
    await sql.unsafe('rollback')
  }
}
