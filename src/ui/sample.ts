// A value that a JSON Schema may let pass, to begin with: people change it.

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

/** What is required, or all there is where nothing is. */
export function sampleOf(schema: unknown): unknown {
  if (typeof schema !== 'object' || schema === null) return {}
  const one = schema as Schema
  if (one.const !== undefined) return one.const
  const known = one.default ?? one.examples?.[0] ?? one.enum?.[0]
  if (known !== undefined) return known
  const [first] = one.anyOf ?? one.oneOf ?? []
  if (first !== undefined) return sampleOf(first)
  switch (Array.isArray(one.type) ? one.type[0] : (one.type ?? 'object')) {
    case undefined:
      return null
    case 'string':
      return (texts[one.format ?? ''] ?? 'test').padEnd(one.minLength ?? 0, 'x')
    case 'integer':
    case 'number':
      return Math.max(one.minimum ?? 1, 1)
    case 'boolean':
      return true
    case 'null':
      return null
    case 'array':
      return Array.from({ length: one.minItems ?? 0 }, () => sampleOf(one.items))
    default:
      return Object.fromEntries(
        Object.entries(one.properties ?? {})
          .filter(([name]) => one.required?.includes(name) ?? true)
          .map(([name, inner]) => [name, sampleOf(inner)])
      )
  }
}
