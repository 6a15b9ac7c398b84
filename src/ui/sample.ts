// A first value for a JSON Schema, probably valid. The user changes it.

interface Schema {
  type?: string | string[]
  properties?: Record<string, unknown>
  required?: string[]
  items?: unknown
  minItems?: number
  minimum?: number
  minLength?: number
  enum?: unknown[]
  const?: unknown
  default?: unknown
  examples?: unknown[]
  format?: string
  anyOf?: unknown[]
  oneOf?: unknown[]
}

const texts: Record<string, string> = {
  'date-time': '2026-11-24T10:00:00Z',
  date: '2026-11-24',
  time: '10:00:00',
  email: 'test@example.com',
  uri: 'https://example.com/',
  uuid: '00000000-0000-4000-8000-000000000000'
}

/** A sample with the required members. With all members if the schema has no list of required ones. */
export function sampleOf(given: unknown): unknown {
  if (typeof given !== 'object' || given === null) return {}
  const schema = given as Schema
  if (schema.const !== undefined) return schema.const
  const known = schema.default ?? schema.examples?.[0] ?? schema.enum?.[0]
  if (known !== undefined) return known
  const [first] = schema.anyOf ?? schema.oneOf ?? []
  if (first !== undefined) return sampleOf(first)
  switch (Array.isArray(schema.type) ? schema.type[0] : (schema.type ?? 'object')) {
    case undefined:
      return null
    case 'string':
      return (texts[schema.format ?? ''] ?? 'test').padEnd(schema.minLength ?? 0, 'x')
    case 'integer':
    case 'number':
      return Math.max(schema.minimum ?? 1, 1)
    case 'boolean':
      return true
    case 'null':
      return null
    case 'array':
      return Array.from({ length: schema.minItems ?? 0 }, () => sampleOf(schema.items))
    default:
      return Object.fromEntries(
        Object.entries(schema.properties ?? {})
          .filter(([name]) => schema.required?.includes(name) ?? true)
          .map(([name, inner]) => [name, sampleOf(inner)])
      )
  }
}
