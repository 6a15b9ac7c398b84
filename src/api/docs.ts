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
      servers: [{ url: '/' }],
      tags: [
        { name: 'tasks', description: 'For producers' },
        { name: 'callback', description: 'For downstreams' },
        { name: 'ops', description: 'For those who run it' }
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
    transformObject: outputsOnly
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
      uiConfig: {
        tryItOutEnabled: true,
        displayRequestDuration: true,
        persistAuthorization: true,
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

/** Named schemas are answers only; their twins for input, which nothing refers to, are left out. */
const outputsOnly: typeof jsonSchemaTransformObject = described => {
  const document = jsonSchemaTransformObject(described)
  const schemas = 'components' in document ? (document.components?.schemas ?? {}) : {}
  for (const name of Object.keys(schemas)) if (name.endsWith('Input')) delete schemas[name]
  return document
}
