import { readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { z } from 'zod'
import {
  alarmsAnswer,
  batchAnswer,
  deliveriesAnswer,
  downstreamsAnswer,
  handlersAnswer,
  healthAnswer,
  pausedAnswer,
  problemAnswer,
  receiptAnswer,
  tasksAnswer
} from '../../src/api/responses.ts'
import { taskAnswer } from '../../src/api/task-answer.ts'
import { access } from '../../src/api/access.ts'
import { openapiJson } from '../../src/api/openapi.ts'
import { api, inject, order } from './fake.ts'

type Json = string | number | boolean | null | Json[] | { [name: string]: Json }
interface Media {
  schema: Json
  examples?: Record<string, { value: unknown }>
  example?: unknown
}
interface Described {
  openapi: string
  tags: { name: string; description: string }[]
  paths: Record<
    string,
    Record<
      string,
      {
        summary?: string
        operationId?: string
        tags: string[]
        requestBody?: { content: Record<string, Media> }
        responses: Record<string, { content?: Record<string, Media> }>
      }
    >
  >
}

const described = async () => JSON.parse(await openapiJson()) as Described

async function root(from = dirname(fileURLToPath(import.meta.url))): Promise<string> {
  const text = await readFile(join(from, 'package.json'), 'utf8').catch(() => '{}')
  return (JSON.parse(text) as { name?: string }).name === 'ackbox' ? from : await root(dirname(from))
}

t.test('the committed description is the one the code gives', async t => {
  t.equal(
    await readFile(join(await root(), 'openapi/openapi.json'), 'utf8'),
    await openapiJson(),
    'run `npm run generate`'
  )
})

t.test('every route is described, with a summary and a name of its own', async t => {
  const { paths, openapi, tags } = await described()
  t.equal(openapi, '3.1.0')
  const told = Object.entries(paths).flatMap(([url, methods]) =>
    Object.entries(methods).map(([method, one]) => ({ route: `${method.toUpperCase()} ${url}`, ...one }))
  )
  const names = told.map(one => one.operationId)
  t.equal(new Set(names).size, told.length)
  for (const one of told) t.ok(one.summary, one.route)
  const declared = tags.map(({ name }) => name)
  t.same(new Set(told.flatMap(one => one.tags)), new Set(declared), 'every tag has a description')
  const routes = Object.keys(access)
    .filter(route => !/docs|openapi|dtmsvr|GET \/(?:ui.*)?$/.test(route)) // the routes of DTM are described in docs/dtm.md
    .map(route => route.replace(/:(\w+)/g, '{$1}'))
  t.same(told.map(one => one.route).toSorted(), routes.toSorted())
})

t.test('every example of a body works as it stands', async t => {
  const { paths } = await described()
  const { app, post, stored } = await api(t)
  let tried = 0
  for (const [url, methods] of Object.entries(paths)) {
    for (const [method, one] of Object.entries(methods)) {
      if (!one.requestBody) continue
      const media = one.requestBody.content['application/json']
      t.ok(media?.examples, `${url} has examples`)
      for (const [name, { value }] of Object.entries(media?.examples ?? {})) {
        await post({ ...order, taskNo: 'order-A-1001' })
        const known = stored.get('order-A-1001')
        if (known && /redeliver|settle/.test(url)) known.task.status = 'FAILED'
        const [first] = known?.task.deliveries ?? []
        if (first && url.includes('push')) first.phase = 'WAITING'
        const answer = await app.inject({
          method: method.toUpperCase() as 'POST',
          url: url
            .replace('{taskNo}', 'order-A-1001')
            .replace('{name}', 'warehouse')
            .replace('{messageCode}', 'order.paid')
            .replace('{fingerprint}', '0123456789abcdef')
            .replace('{downstream}', 'warehouse')
            .replace('{key}', 'order-7'),
          payload: JSON.stringify(value),
          headers: { 'content-type': 'application/json', 'ackbox-callback-token': 'good' }
        })
        t.ok(
          answer.statusCode < 300 || answer.statusCode === 409,
          `${url} ${name}: ${answer.body.slice(0, 200)}`
        )
        tried++
      }
    }
  }
  t.ok(tried >= 16)
})

t.test('every answer in JSON has an example that fits its description', async t => {
  const document = JSON.parse(await openapiJson()) as Described & {
    components: { schemas: Record<string, Json> }
  }
  /** The schema with each reference replaced by its target. */
  const whole = (schema: Json): Json => {
    if (Array.isArray(schema)) return schema.map(whole)
    if (typeof schema !== 'object' || schema === null) return schema
    const name = typeof schema['$ref'] === 'string' ? schema['$ref'].split('/').at(-1) : undefined
    if (name !== undefined) return whole(document.components.schemas[name] ?? null)
    return Object.fromEntries(Object.entries(schema).map(([key, inner]) => [key, whole(inner)]))
  }
  let seen = 0
  for (const [url, methods] of Object.entries(document.paths))
    for (const [method, { responses }] of Object.entries(methods))
      for (const [status, { content }] of Object.entries(responses)) {
        const media = content?.['application/json']
        if (!status.startsWith('2') || !media) continue
        const what = `${method.toUpperCase()} ${url} ${status}`
        t.ok(media.example, `${what} has an example`)
        const read = z
          .fromJSONSchema(whole(media.schema) as Parameters<typeof z.fromJSONSchema>[0])
          .safeParse(media.example)
        t.ok(read.success, `${what}: ${read.error?.message ?? 'it fits'}`)
        seen++
      }
  t.ok(seen >= 45, `${seen} answers`)
})

t.test('the description holds no limit of JavaScript, and no member called additionalProp1', async t => {
  const text = await openapiJson()
  t.equal(text.match(/9007199254740991/g)?.length ?? 0, 0)
  t.equal(text.match(/"additionalProperties": \{\}/g)?.length ?? 0, 0, 'Swagger UI would make up members')
})

t.test('what is answered is what the description says', async t => {
  const { app, post } = await api(t)
  const fits = (schema: { parse(value: unknown): unknown }, body: unknown, name: string) =>
    t.doesNotThrow(() => schema.parse(body), name)
  fits(taskAnswer, (await post({ ...order, taskNo: 'one' })).json(), 'POST /tasks')
  fits(batchAnswer, (await inject(app, '/tasks/batch', { tasks: [order, 1] })).json(), 'POST /tasks/batch')
  fits(taskAnswer, (await app.inject('/tasks/one')).json(), 'GET /tasks/:taskNo')
  fits(tasksAnswer, (await app.inject('/tasks')).json(), 'GET /tasks')
  fits(deliveriesAnswer, (await app.inject('/deliveries')).json(), 'GET /deliveries')
  fits(alarmsAnswer, (await app.inject('/alarms')).json(), 'GET /alarms')
  fits(handlersAnswer, (await app.inject('/handlers')).json(), 'GET /handlers')
  fits(downstreamsAnswer, (await app.inject('/downstreams')).json(), 'GET /downstreams')
  fits(
    pausedAnswer,
    (await app.inject({ method: 'POST', url: '/downstreams/warehouse/pause' })).json(),
    'pause'
  )
  fits(
    receiptAnswer,
    (
      await inject(
        app,
        '/callback',
        { taskNo: 'one', messageCode: 'order.paid' },
        { 'ackbox-callback-token': 'good' }
      )
    ).json(),
    'POST /callback'
  )
  fits(healthAnswer, (await app.inject('/readyz')).json(), 'GET /readyz')
  fits(problemAnswer, (await app.inject('/nowhere')).json(), 'a problem')
})

t.test('Swagger UI is there, loads nothing from elsewhere, and runs no script but its own', async t => {
  const { app } = await api(t)
  const page = await app.inject('/docs')
  t.match(page, { statusCode: 200, headers: { 'content-type': /html/ } })
  const policy = String(page.headers['content-security-policy'])
  t.match(policy, /default-src 'self'/)
  t.notMatch(policy, /script-src[^;]*unsafe/)
  t.notMatch(page.body, /https?:\/\//)
  for (const [, link] of page.body.matchAll(/(?:src|href)="([^"]+)"/g)) {
    t.equal((await app.inject(new URL(link ?? '', 'http://x/docs/').pathname)).statusCode, 200, link ?? '')
  }
  t.match((await app.inject('/docs/json')).json(), { openapi: '3.1.0' })
  t.match((await app.inject('/openapi.json')).json(), { openapi: '3.1.0' })
})
