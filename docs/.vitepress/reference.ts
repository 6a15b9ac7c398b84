// openapi/openapi.json as pages: one for each tag, one for the shapes that several calls share.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { root } from './pages.ts'

interface Schema {
  $ref?: string
  type?: string | string[]
  description?: string
  enum?: unknown[]
  const?: unknown
  pattern?: string
  format?: string
  items?: Schema
  properties?: Record<string, Schema>
  required?: string[]
  anyOf?: Schema[]
  oneOf?: Schema[]
  allOf?: Schema[]
  minimum?: number
  maximum?: number
}
interface Parameter {
  name: string
  in: string
  required?: boolean
  description?: string
  schema: Schema
}
type Content = Record<string, { schema: Schema }>
interface Operation {
  summary?: string
  description?: string
  tags?: string[]
  parameters?: Parameter[]
  requestBody?: { content: Content }
  responses: Record<string, { description: string; content?: Content }>
}
interface Description {
  info: { version: string }
  tags: { name: string; description: string }[]
  paths: Record<string, Record<string, Operation>>
  components: { schemas: Record<string, Schema> }
}

const described = JSON.parse(readFileSync(path.join(root, 'openapi/openapi.json'), 'utf8')) as Description
const calls = Object.entries(described.paths).flatMap(([url, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({ method: method.toUpperCase(), url, ...operation }))
)
const tagged = [...new Set(calls.map(({ tags: [tag = 'other'] = [] }) => tag))]
export const tags = [...tagged, 'shapes']

export const pageOf = (tag: string): string =>
  tag === 'shapes'
    ? `# API: shapes\n\n${Object.entries(described.components.schemas).map(shape).join('\n')}`
    : [
        `# API: ${tag}\n`,
        `${described.tags.find(({ name }) => name === tag)?.description ?? ''}\n`,
        `Version ${described.info.version}, from the same description as \`/openapi.json\` of a running service.\n`,
        ...calls.filter(({ tags: [its = 'other'] = [] }) => its === tag).map(call)
      ].join('\n')

function call({ method, url, summary, description, parameters = [], requestBody, responses }: (typeof calls)[number]): string {
  const body = requestBody?.content['application/json']?.schema
  return [
    `## \`${method} ${url}\`\n`,
    `**${plain(summary ?? '')}**${description ? ` ${plain(description)}` : ''}\n`,
    table(
      ['parameter', 'in', 'type', ''],
      parameters.map(({ name, in: place, required, schema, description: says }) => [
        marked(name, required === true),
        place,
        typeOf(schema),
        plain(says ?? schema.description ?? '')
      ])
    ),
    body ? `The body: ${body.properties ? '' : typeOf(body)}\n` : '',
    body ? members(body) : '',
    table(
      ['answer', '', 'type'],
      Object.entries(responses).map(([status, { description: says, content }]) => [
        status,
        plain(says),
        [...new Set(Object.values(content ?? {}).map(({ schema }) => typeOf(schema)))].join('<br>')
      ])
    )
  ].join('\n')
}

const shape = ([name, schema]: [string, Schema]): string =>
  `## ${name}\n\n${schema.description ? `${plain(schema.description)}\n` : ''}\n${members(schema) || typeOf(schema)}\n`

const members = ({ properties = {}, required = [] }: Schema): string =>
  table(
    ['member', 'type', ''],
    Object.entries(properties).map(([name, schema]) => [
      marked(name, required.includes(name)),
      typeOf(schema),
      plain(schema.description ?? '')
    ])
  )

const marked = (name: string, isRequired: boolean): string => `\`${name}\`${isRequired ? ' (required)' : ''}`

function typeOf(schema: Schema): string {
  const name = schema.$ref?.split('/').at(-1)
  if (name) return `[${name}](/reference/shapes#${name.toLowerCase()})`
  const some = schema.anyOf ?? schema.oneOf ?? schema.allOf
  if (some) return [...new Set(some.map(typeOf))].join(' or ')
  if (schema.const !== undefined) return `\`${JSON.stringify(schema.const)}\``
  if (schema.enum) return schema.enum.map(value => `\`${String(value)}\``).join(', ')
  if (schema.items) return `list of ${typeOf(schema.items)}`
  if (schema.properties) return `object of ${Object.keys(schema.properties).map(key => `\`${key}\``).join(', ')}`
  const bounds = [schema.minimum, schema.maximum].some(bound => bound !== undefined)
    ? ` ${schema.minimum ?? ''}…${schema.maximum ?? ''}`
    : ''
  return `${[schema.type ?? 'any JSON'].flat().join(' or ')}${schema.format ? ` (${schema.format})` : ''}${bounds}`
}

function table(head: string[], rows: string[][]): string {
  if (rows.length === 0) return ''
  const line = (cells: string[]): string => `| ${cells.map(cell => cell.replaceAll('|', '\\|')).join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...rows.map(line), ''].join('\n')
}

/** Text of the description, on one line; what would be markup is not. */
const plain = (text: string): string =>
  text.replaceAll(/\s+/g, ' ').replaceAll('<', '&lt;').replaceAll('{{', '{&#123;').replaceAll('*', '\\*')
