import helmet from '@fastify/helmet'
import swagger from '@fastify/swagger'
import swaggerUi from '@fastify/swagger-ui'
import type { RouteHandlerMethod } from 'fastify'
import { jsonSchemaTransform, jsonSchemaTransformObject } from 'fastify-type-provider-zod'
import { version } from '../runtime/package.ts'
import { readFiles, sendFile, type StaticFile } from './static-files.ts'
import { taskAnswers } from './answer-examples.ts'
import { opsAnswers } from './answer-examples-ops.ts'
import type { App } from './typed.ts'
import { Problem } from '../runtime/errors.ts'

const about = `Ackbox delivers tasks to downstreams and retries until they prove that they handled them.

Post a task, read its deliveries and attempts, pause and resume a downstream, redeliver what failed.
The examples have the messageCodes, bodies and downstreams of the sample handlers: put your own in their place.
With AUTH on, press *Authorize* and paste a key (\`ack_…\`).`

/** The OpenAPI of the routes that follow, and Swagger UI at /docs. */
export async function docs(app: App): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: { title: 'Ackbox', version, description: about },
      tags: [
        { name: 'tasks', description: 'Post, read and redeliver tasks' },
        { name: 'callback', description: 'Where downstreams send receipts' },
        { name: 'ops', description: 'State of the service, and controls' },
        { name: 'dashboard', description: 'Data of the dashboard: charts, failures by cause, events' },
        { name: 'operations', description: 'Bulk redeliveries in the background' },
        { name: 'outbox', description: 'Rows of the outbox that were rejected' },
        { name: 'reconcile', description: 'Comparisons with the records of downstreams' }
      ],
      components: {
        securitySchemes: {
          key: { type: 'http', scheme: 'bearer', description: 'An API key, ack_…' },
          callbackToken: { type: 'apiKey', in: 'header', name: 'ackbox-callback-token' }
        }
      },
      security: [{ key: [] }]
    },
    transform: jsonSchemaTransform,
    transformObject: readable
  })
  // Bytes, so that answers that are not read yet share them.
  let text: Buffer | undefined
  let yaml: Buffer | undefined
  const described: RouteHandlerMethod = (_request, reply) => {
    text ??= Buffer.from(JSON.stringify(app.swagger()))
    return reply.type('application/json; charset=utf-8').send(text)
  }
  const describedInYaml: RouteHandlerMethod = (_request, reply) => {
    yaml ??= Buffer.from(app.swagger({ yaml: true }))
    return reply.type('application/x-yaml').send(yaml)
  }
  await app.register(async pages => {
    await pages.register(helmet, {
      contentSecurityPolicy: {
        useDefaults: false,
        directives: {
          'default-src': ["'self'"],
          'base-uri': ["'none'"],
          'frame-ancestors': ["'none'"],
          'object-src': ["'none'"],
          'img-src': ["'self'", 'data:'],
          // Swagger UI sets styles on its elements.
          'style-src': ["'self'", "'unsafe-inline'"]
        }
      },
      // Only the proxy in front knows whether there is TLS.
      hsts: false
    })
    const files = readFiles(new URL('static/', import.meta.resolve('@fastify/swagger-ui')))
    pages.addHook('onRoute', route => {
      if (route.url === '/docs/static/*') route.handler = fromMemory(files)
      if (route.url === '/docs/json') route.handler = described
      if (route.url === '/docs/yaml') route.handler = describedInYaml
    })
    await pages.register(swaggerUi, {
      routePrefix: '/docs',
      theme: { title: 'Ackbox', css: [{ filename: 'ackbox.css', content: looks }] },
      uiConfig: {
        tryItOutEnabled: true,
        displayRequestDuration: true,
        // Schemas are shown where they are used. A separate list would only make the page longer.
        defaultModelsExpandDepth: -1,
        defaultModelExpandDepth: 4,
        deepLinking: true,
        validatorUrl: null
      }
    })
  })
  app.get('/openapi.json', { schema: { hide: true } }, described)
}

/** The plugin would open a file for each request, and keep it open until the answer is read. */
function fromMemory(files: Map<string, StaticFile>): RouteHandlerMethod {
  return (request, reply) => {
    const file = files.get((request.params as { '*': string })['*'])
    if (!file) throw new Problem('NOT_FOUND')
    return sendFile(request, reply.header('cache-control', 'public, max-age=0'), file)
  }
}

/** Hides the bar that selects a document, since there is only one, and the examples of problems, which all look alike. */
const looks = `.swagger-ui .topbar { display: none }
.swagger-ui .info { margin: 30px 0 10px }
.swagger-ui .response:not([data-code^='2']) .model-example,
.swagger-ui .response:not([data-code^='2']) .response-controls { display: none }
.swagger-ui .live-responses-table .response .model-example { display: block }`

const answers = { ...taskAnswers, ...opsAnswers }
/** @fastify/swagger says of every body that it is required. */
const withOptionalBody = new Set(['releaseKey'])

/**
 * Named schemas are answers only; their twins for input, which nothing refers to, are removed. Parameters of the path come
 * before optional ones. Answers get their examples.
 */
const readable: typeof jsonSchemaTransformObject = described => {
  const document = jsonSchemaTransformObject(described)
  const schemas = 'components' in document ? (document.components?.schemas ?? {}) : {}
  for (const name of Object.keys(schemas)) if (name.endsWith('Input')) delete schemas[name]
  plain(document)
  const operations = Object.values(document.paths ?? {}).flatMap(methods => Object.values(methods ?? {}))
  for (const operation of operations as Operation[]) {
    if (withOptionalBody.has(operation.operationId)) delete operation.requestBody?.required
    operation.parameters?.sort((a, b) => Number(b.in === 'path') - Number(a.in === 'path'))
    for (const [status, answer] of Object.entries(operation.responses)) {
      if (answer.description === 'Default Response') answer.description = 'OK'
      const media = answer.content?.['application/json']
      const example = answers[operation.operationId]?.[status]
      if (media && example !== undefined) media.example = structuredClone(example)
    }
  }
  return document
}

interface Operation {
  operationId: string
  parameters?: { in: string }[]
  requestBody?: { required?: boolean }
  responses: Record<string, { description: string; content?: Record<string, { example?: unknown }> }>
}

/** Removes parts without meaning: Swagger UI shows an open object as `additionalProp1`, and a limit of JavaScript is not ours. */
function plain(node: unknown): void {
  if (typeof node !== 'object' || node === null) return
  const schema = node as Record<string, unknown>
  if (schema['maximum'] === Number.MAX_SAFE_INTEGER) delete schema['maximum']
  const open = schema['additionalProperties']
  if (typeof open === 'object' && open !== null && Object.keys(open).length === 0)
    delete schema['additionalProperties']
  for (const inner of Object.values(schema)) plain(inner)
}
