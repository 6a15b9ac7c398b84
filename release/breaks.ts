// Compares an OpenAPI description with the previous one, and finds the changes that break an existing client.

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json }
type Schema = { [name: string]: Json }
/** The side decides which change breaks: a response may not lose a member or give a new kind of value, a request may not require more. */
type Side = 'request' | 'response'

const methods = ['get', 'put', 'post', 'delete', 'patch', 'head', 'options']

/** One line for each item that is gone, newly required or newly restricted. Empty: the API only grew. */
export function breaks(before: Json, after: Json): string[] {
  const found: string[] = []
  const old = object(before)
  const now = object(after)
  for (const [url, path] of entries(old['paths'])) {
    const newPath = object(object(now['paths'])[url])
    if (Object.keys(newPath).length === 0) {
      found.push(`${url} is gone`)
      continue
    }
    for (const method of methods.filter(name => name in object(path))) {
      const at = `${method.toUpperCase()} ${url}`
      const operation = newPath[method]
      if (operation === undefined) found.push(`${at} is gone`)
      else found.push(...ofOperation({ old, now }, at, object(object(path)[method]), object(operation)))
    }
  }
  return found
}

interface Documents {
  old: Schema
  now: Schema
}

function ofOperation(documents: Documents, at: string, old: Schema, now: Schema): string[] {
  const found = ofParameters(documents, at, old, now)
  const pairs = (a: Json | undefined, b: Json | undefined, side: Side, where: string): void => {
    for (const [type, content] of entries(resolve(documents.old, a)['content'])) {
      const other = object(resolve(documents.now, b)['content'])[type]
      if (other === undefined) found.push(`${where}: ${type} is gone`)
      else compare(documents, object(content)['schema'], object(other)['schema'], side, where, found)
    }
  }
  pairs(old['requestBody'], now['requestBody'], 'request', `${at} request`)
  for (const [status, response] of entries(old['responses'])) {
    const other = object(now['responses'])[status]
    if (other === undefined) found.push(`${at} ${status} is gone`)
    else pairs(response, other, 'response', `${at} ${status}`)
  }
  const isRequired = (one: Schema, root: Schema) => resolve(root, one['requestBody'])['required'] === true
  if (isRequired(now, documents.now) && !isRequired(old, documents.old))
    found.push(`${at} request is required now`)
  return found
}

function ofParameters(documents: Documents, at: string, old: Schema, now: Schema): string[] {
  const found: string[] = []
  const named = (root: Schema, one: Schema) =>
    new Map(
      list(one['parameters']).map(given => {
        const parameter = resolve(root, given)
        return [`${word(parameter['in'])} ${word(parameter['name'])}`, parameter] as const
      })
    )
  const before = named(documents.old, old)
  const after = named(documents.now, now)
  for (const [name, parameter] of before) {
    const other = after.get(name)
    if (other === undefined) found.push(`${at}: ${name} is gone`)
    else compare(documents, parameter['schema'], other['schema'], 'request', `${at}: ${name}`, found)
  }
  for (const [name, parameter] of after)
    if (parameter['required'] === true && before.get(name)?.['required'] !== true)
      found.push(`${at}: ${name} is required now`)
  return found
}

function compare(
  documents: Documents,
  before: Json | undefined,
  after: Json | undefined,
  side: Side,
  at: string,
  found: string[],
  above: readonly Schema[] = []
): void {
  const old = resolve(documents.old, before)
  const now = resolve(documents.now, after)
  // A recursive schema is already being compared.
  if (above.includes(old)) return
  const within = [...above, old]
  const into = (a: Json | undefined, b: Json | undefined, where: string): void =>
    compare(documents, a, b, side, where, found, within)

  const fits = (a: Json, b: Json): boolean => {
    const wrongs: string[] = []
    compare(documents, a, b, side, at, wrongs, within)
    return wrongs.length === 0
  }

  const [wereTypes, areTypes] = [types(old), types(now)]
  for (const type of wereTypes) if (!areTypes.includes(type)) found.push(`${at}: no ${type} any more`)
  if (side === 'response' && wereTypes.length > 0)
    for (const type of areTypes) if (!wereTypes.includes(type)) found.push(`${at}: may be ${type} now`)
  const [oldMembers, members] = [membersOf(old), membersOf(now)]
  if (members.length > 0)
    for (const member of oldMembers)
      if (!members.includes(member)) found.push(`${at}: ${JSON.stringify(member)} is gone`)
  if (side === 'request' && members.length > 0 && oldMembers.length === 0)
    found.push(`${at}: only ${members.map(member => JSON.stringify(member)).join(', ')} now`)
  if (side === 'request' && now['additionalProperties'] === false && old['additionalProperties'] !== false)
    found.push(`${at}: no other member any more`)

  const properties = object(now['properties'])
  for (const [name, schema] of entries(old['properties'])) {
    if (properties[name] === undefined) found.push(`${at}/${name} is gone`)
    else into(schema, properties[name], `${at}/${name}`)
  }
  const [wasThere, isThere] = [words(old['required']), words(now['required'])]
  if (side === 'request')
    for (const name of isThere.filter(one => !wasThere.includes(one)))
      found.push(`${at}/${name} is required now`)
  else
    for (const name of wasThere.filter(one => !isThere.includes(one) && properties[one] !== undefined))
      found.push(`${at}/${name} may be missing now`)

  for (const key of ['items', 'additionalProperties'])
    if (isObject(old[key]) && isObject(now[key])) into(old[key], now[key], `${at}/*`)
  for (const key of ['anyOf', 'oneOf', 'allOf']) {
    const [branches, others] = [list(old[key]), list(now[key])]
    for (const [index, branch] of branches.entries())
      if (!others.some(other => fits(branch, other)))
        found.push(`${at}: ${key}[${index}] has no equal any more`)
    // One more branch of allOf restricts a response, and breaks nobody.
    if (side === 'response' && key !== 'allOf' && branches.length > 0)
      for (const [index, other] of others.entries())
        if (!branches.some(branch => fits(branch, other))) found.push(`${at}: ${key}[${index}] is new`)
  }
}

const word = (value: Json | undefined): string => (typeof value === 'string' ? value : JSON.stringify(value))
const words = (value: Json | undefined): string[] => list(value).map(word)
const types = (schema: Schema): string[] => words(schema['type'])
const membersOf = (schema: Schema): Json[] => list(schema['enum'] ?? schema['const'])
const isObject = (value: Json | undefined): value is Schema =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
const object = (value: Json | undefined): Schema => (isObject(value) ? value : {})
const entries = (value: Json | undefined): [string, Json][] => Object.entries(object(value))
const list = (value: Json | undefined): Json[] =>
  Array.isArray(value) ? value : value === undefined ? [] : [value]

function resolve(root: Schema, value: Json | undefined): Schema {
  const schema = object(value)
  const reference = schema['$ref']
  if (typeof reference !== 'string') return schema
  const parts = reference.replace(/^#\//, '').split('/')
  return resolve(
    root,
    parts.reduce<Json | undefined>(
      (at, part) => object(at)[part.replaceAll('~1', '/').replaceAll('~0', '~')],
      root
    )
  )
}
