import { readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { breaks, type Json } from '../../release/breaks.ts'

const file = path.resolve(import.meta.dirname, '../../../openapi/openapi.json')

interface Part {
  [name: string]: Part
}
/** Our own API description, with `change` applied. */
function described(change: (api: Part) => void = () => {}): Json {
  const api = JSON.parse(readFileSync(file, 'utf8')) as Part
  change(api)
  return api
}
function small(schema: object, request: object = { type: 'object' }): Json {
  const content = (of: object) => ({ content: { 'application/json': { schema: of } } })
  const post = { requestBody: content(request), responses: { 200: content(schema) } }
  return JSON.parse(JSON.stringify({ paths: { '/x': { post } } })) as Json
}
const string = { type: 'string' }

t.test('an API that is the same, or only grew, breaks nobody', async t => {
  t.same(breaks(described(), described()), [])
  const grown = described(api => {
    api['paths']!['/new'] = { get: { responses: {} } }
  })
  t.same(breaks(described(), grown), [])
  t.same(
    breaks(
      small({ type: 'object', properties: { a: string } }),
      small(
        { type: 'object', properties: { a: string, b: string } },
        { type: 'object', properties: { c: string } }
      )
    ),
    []
  )
})

t.test('a path, a method, an answer and a parameter that were taken away are named', async t => {
  const without = (change: (api: Part) => void): string[] => breaks(described(), described(change))
  t.same(
    without(api => delete api['paths']!['/tasks/batch']),
    ['/tasks/batch is gone']
  )
  t.same(
    without(api => delete api['paths']!['/tasks']!['post']),
    ['POST /tasks is gone']
  )
  t.same(
    without(api => delete api['paths']!['/tasks']!['post']!['responses']!['201']),
    ['POST /tasks 201 is gone']
  )
  const [first] = without(api => delete api['paths']!['/tasks']!['get']!['parameters'])
  t.match(first, /^GET \/tasks: query \w+ is gone$/)
})

t.test('a field and an enum member that were taken away are named, however deep', async t => {
  const of = (schema: object) =>
    small({ type: 'object', properties: { list: { type: 'array', items: schema } } })
  const at = 'POST /x 200/list/*'
  t.same(
    breaks(
      of({ type: 'object', properties: { a: string, b: string } }),
      of({ type: 'object', properties: { a: string } })
    ),
    [`${at}/b is gone`]
  )
  t.same(breaks(of({ enum: ['A', 'B'] }), of({ enum: ['A'] })), [`${at}: "B" is gone`])
  t.same(breaks(of(string), of({ type: 'integer' })), [
    `${at}: no string any more`,
    `${at}: may be integer now`
  ])
  t.same(breaks(of({ anyOf: [string, { type: 'null' }] }), of({ anyOf: [string] })), [
    `${at}: anyOf[1] has no equal any more`
  ])
  t.same(
    breaks(
      of({ type: 'object', properties: { a: string }, required: ['a'] }),
      of({ type: 'object', properties: { a: string } })
    ),
    [`${at}/a may be missing now`]
  )
})

t.test('a field of a request that became required, or went, is named', async t => {
  const asks = (schema: object) => small({}, { type: 'object', ...schema })
  t.same(breaks(asks({ properties: { a: string } }), asks({ properties: { a: string }, required: ['a'] })), [
    'POST /x request/a is required now'
  ])
  t.same(breaks(asks({ properties: { a: string } }), asks({ properties: {} })), ['POST /x request/a is gone'])
  t.same(
    breaks(asks({ properties: { a: string }, required: ['a'] }), asks({ properties: { a: string } })),
    [],
    'what is asked for no more breaks nobody'
  )
})

t.test('a field of a request that takes less than before is named', async t => {
  const asks = (of: object) => small({}, { type: 'object', properties: { a: of } })
  t.same(breaks(asks(string), asks({ ...string, enum: ['A', 'B'] })), [
    'POST /x request/a: only "A", "B" now'
  ])
  t.same(breaks(asks(string), asks({ ...string, const: 'A' })), ['POST /x request/a: only "A" now'])
  t.same(breaks(asks({ const: 'A' }), asks({ enum: ['A', 'B'] })), [], 'one more member breaks nobody')
  const object = { type: 'object', properties: { b: string } }
  const closed = { ...object, additionalProperties: false }
  t.same(breaks(asks(object), asks(closed)), ['POST /x request/a: no other member any more'])
  t.same(breaks(asks({ ...object, additionalProperties: string }), asks(closed)), [
    'POST /x request/a: no other member any more'
  ])
  t.same(breaks(asks(closed), asks(object)), [])
  const either = (...branches: object[]) => asks({ anyOf: branches })
  t.same(breaks(either(string), either(string, { type: 'null' })), [], 'nor does one more kind of value')
})

t.test('a field of an answer that may be of a new kind is named', async t => {
  const of = (schema: object) => small({ type: 'object', properties: { a: schema } })
  const at = 'POST /x 200/a'
  t.same(breaks(of(string), of({ type: ['string', 'null'] })), [`${at}: may be null now`])
  t.same(breaks(of({ anyOf: [string] }), of({ anyOf: [string, { type: 'null' }] })), [
    `${at}: anyOf[1] is new`
  ])
  t.same(breaks(of(string), of({ ...string, enum: ['A'] })), [], 'what says more than before breaks nobody')
  t.same(breaks(of({}), of(string)), [])
  const object = { type: 'object', properties: { b: string } }
  t.same(breaks(of(object), of({ ...object, additionalProperties: false })), [])
})

t.test('what a $ref names is compared, and one that holds itself ends', async t => {
  const tree = (leaf: object) =>
    JSON.parse(
      JSON.stringify({
        components: {
          schemas: {
            Tree: { type: 'object', properties: { leaf, next: { $ref: '#/components/schemas/Tree' } } }
          }
        },
        paths: {
          '/x': {
            get: { responses: { 200: { content: { j: { schema: { $ref: '#/components/schemas/Tree' } } } } } }
          }
        }
      })
    ) as Json
  t.same(breaks(tree(string), tree(string)), [])
  t.same(breaks(tree({ enum: ['A', 'B'] }), tree({ enum: ['A'] })), ['GET /x 200/leaf: "B" is gone'])
})
