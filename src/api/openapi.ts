import { buildApp } from './app.ts'
import type { ApiDeps } from './deps.ts'
import { createMetrics } from '../runtime/metrics.ts'

/** openapi/openapi.json, as committed. */
export async function openapiJson(): Promise<string> {
  const app = await buildApp(nobody)
  try {
    return JSON.stringify(app.swagger(), null, 2) + '\n'
  } finally {
    await app.close()
  }
}

const never = (): never => {
  throw new Error('this app is only there to be described')
}
const nobody: ApiDeps = {
  accept: never,
  acceptMany: never,
  refusal: never,
  readTask: never,
  contentHashes: never,
  waitTask: never,
  dryRun: never,
  listTasks: never,
  remove: never,
  redeliver: never,
  push: never,
  settle: never,
  countFailed: never,
  redeliverAll: never,
  readOperation: never,
  listOperations: never,
  listOperationDeliveries: never,
  stopOperation: never,
  listAudit: never,
  listNodes: never,
  setLimits: never,
  commit: never,
  rollBack: never,
  check: never,
  receive: never,
  listDeliveries: never,
  listAlarms: never,
  listRejected: never,
  retryRejected: never,
  removeRejected: never,
  nudge: never,
  listDownstreams: never,
  listOrderingKeys: never,
  release: never,
  pause: never,
  resume: never,
  readStats: never,
  listFailures: never,
  archiveFailure: never,
  createSession: never,
  endSession: never,
  watch: never,
  listApiKeys: never,
  createApiKey: never,
  revokeApiKey: never,
  resolveAlarm: never,
  reconcile: never,
  findKey: never,
  ready: never,
  overload: never,
  now: never,
  handlers: new Map(),
  metrics: createMetrics({ processMetrics: false }),
  log: { error: never, warn: never },
  auth: true,
  trustProxy: false,
  host: '127.0.0.1',
  publicUrl: 'http://127.0.0.1:3000'
}
