import { buildApp } from './app.ts'
import type { ApiDeps } from './deps.ts'
import { createMetrics } from '../runtime/metrics.ts'

/** openapi/openapi.json, as committed. */
export async function openapiJson(): Promise<string> {
  const app = await buildApp(described as ApiDeps)
  try {
    return JSON.stringify(app.swagger(), null, 2) + '\n'
  } finally {
    await app.close()
  }
}

/** Without the functions: an app that is only described calls none. */
const described: Partial<ApiDeps> = {
  handlers: new Map(),
  metrics: createMetrics({ processMetrics: false }),
  auth: true,
  trustProxy: false,
  host: '127.0.0.1',
  publicUrl: 'http://127.0.0.1:3000'
}
