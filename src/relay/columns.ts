import { nearest } from '../runtime/nearest.ts'
import { RelayError } from './source.ts'

/** The type of a task's member, into which the value of an expression is converted. */
type Kind = 'text' | 'json' | 'time' | 'flag' | 'number'

/** The members of a task that a row can set. `delay` is excluded: it would start again with each run. */
export const kinds = {
  taskNo: 'text',
  messageCode: 'text',
  messageBody: 'json',
  sceneType: 'text',
  deliverStartTime: 'time',
  deliverBefore: 'time',
  orderingKey: 'text',
  needCallback: 'flag',
  retryTimes: 'number',
  bizType: 'text',
  bizKey: 'text',
  uniqueBiz: 'flag',
  after: 'json',
  extend: 'json',
  traceparent: 'text'
} as const satisfies Record<string, Kind>
export type Member = keyof typeof kinds

/** Members of a task, each with the SQL expression that computes it from a row. */
export type Columns = Partial<Record<Member, string>>

const isMember = (name: string): name is Member => Object.hasOwn(kinds, name)
const required: Member[] = ['taskNo', 'messageCode', 'messageBody']

/** Reads `taskNo=id,messageCode='order.paid',…`. Throws a RelayError that names the missing or unknown member. */
export function readColumns(text: string): Columns {
  const columns: Columns = {}
  for (const part of parts(text)) {
    const [, name = '', expression = ''] = /^\s*(\w+)\s*=\s*([^]*\S)\s*$/.exec(part) ?? []
    if (expression === '')
      throw new RelayError(`--columns: ${part.trim() || 'an empty part'} is not MEMBER=EXPRESSION`)
    if (!isMember(name)) {
      const meant = nearest(name, Object.keys(kinds))
      throw new RelayError(
        `--columns: ${name} is not a member of a task: ${meant ? `did you mean ${meant}?` : `the members are ${Object.keys(kinds).join(', ')}`}`
      )
    }
    if (columns[name] !== undefined) throw new RelayError(`--columns: ${name} is given twice`)
    columns[name] = expression
  }
  const missing = required.find(name => columns[name] === undefined)
  // Without a taskNo, a row that is copied again would become a second task.
  if (missing !== undefined) throw new RelayError(`--columns: ${missing}=… is missing`)
  return columns
}

/** Splits at commas outside quotes, parentheses and brackets. */
function parts(text: string): string[] {
  const tokens = text.match(/'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|[^]/g) ?? []
  const found = ['']
  let depth = 0
  for (const token of tokens) {
    if (token === '(' || token === '[') depth++
    if (token === ')' || token === ']') depth--
    if (token === ',' && depth === 0) found.push('')
    else found.push(`${found.pop() ?? ''}${token}`)
  }
  return found
}
