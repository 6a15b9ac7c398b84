import helmet from '@fastify/helmet'
import swagger from '@fastify/swagger'
import swaggerUi from '@fastify/swagger-ui'
import { jsonSchemaTransform, jsonSchemaTransformObject } from 'fastify-type-provider-zod'
import type { App } from './typed.ts'

const about = `Ackbox delivers tasks to downstreams, again and again until they prove that they handled them.

Post a task, look at it, see its deliveries and attempts; pause a downstream, resume it; deliver again what failed.
With AUTH on, press *Authorize* and paste a key (\`ack_…\`).`

/** The description of the routes that follow, and Swagger UI over it at /docs. */
export async function docs(app: App): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: { title: 'Ackbox', version: '1.0.0', description: about },
      tags: [
        { name: 'tasks', description: 'Post one, see what became of it, deliver it again' },
        { name: 'callback', description: 'Where downstreams say that they handled it' },
        { name: 'ops', description: 'What goes on, and where to stop it' }
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
      // Whether there is TLS is for the proxy in front to say.
      hsts: false
    })
    await pages.register(swaggerUi, {
      routePrefix: '/docs',
      theme: { title: 'Ackbox', css: [{ filename: 'ackbox.css', content: looks }] },
      uiConfig: {
        tryItOutEnabled: true,
        displayRequestDuration: true,
        // Shown where they are used; as a list of their own they only make the page longer.
        defaultModelsExpandDepth: -1,
        defaultModelExpandDepth: 4,
        deepLinking: true,
        validatorUrl: null
      }
    })
  })
  let text: string | undefined
  app.get('/openapi.json', { schema: { hide: true } }, async (_request, reply) => {
    text ??= JSON.stringify(app.swagger())
    return reply.type('application/json; charset=utf-8').send(text)
  })
}

/** One document is all there is: no bar to choose another. All problems look alike: their sentences will do. */
const looks = `.swagger-ui .topbar { display: none }
.swagger-ui .info { margin: 30px 0 10px }
.swagger-ui .response:not([data-code^='2']) .model-example,
.swagger-ui .response:not([data-code^='2']) .response-controls { display: none }
.swagger-ui .live-responses-table .response .model-example { display: block }`

/**
 * Named schemas are answers only; their twins for input, which nothing refers to, are left out. What is in the path comes
 * before what is optional behind it.
 */
const readable: typeof jsonSchemaTransformObject = described => {
  const document = jsonSchemaTransformObject(described)
  const schemas = 'components' in document ? (document.components?.schemas ?? {}) : {}
  for (const name of Object.keys(schemas)) if (name.endsWith('Input')) delete schemas[name]
  const operations = Object.values(document.paths ?? {}).flatMap(methods => Object.values(methods ?? {}))
  for (const operation of operations as Operation[]) {
    operation.parameters?.sort((a, b) => Number(b.in === 'path') - Number(a.in === 'path'))
    for (const answer of Object.values(operation.responses))
      if (answer.description === 'Default Response') answer.description = 'OK'
  }
  return document
}

interface Operation {
  parameters?: { in: string }[]
  responses: Record<string, { description: string }>
}
