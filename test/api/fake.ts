import type { ApiKey } from '../../src/db/api-keys.ts'
import type { TaskView } from '../../src/db/views.ts'
import type { AcceptResult, TaskRequest } from '../../src/delivery/accept.ts'
import type { ReceiptRequest } from '../../src/delivery/receive.ts'
import { hash } from 'node:crypto'
import type { Test } from 'tap'
import { z } from 'zod'
import { buildApp } from '../../src/api/app.ts'
import type { ApiDeps } from '../../src/api/deps.ts'
import type { ConnectionLimits } from '../../src/api/connections.ts'
import { isSameContent, type Content } from '../../src/domain/content.ts'
import { uuidv7 } from '../../src/domain/ids.ts'
import { problemBody } from '../../src/runtime/errors.ts'
import { createMetrics } from '../../src/runtime/metrics.ts'
import type { App } from '../../src/api/typed.ts'

/** The rest of the service, in memory. It is enough to check the calls of the API and its answers. */
export function fakeService() {
  const stored = new Map<string, { task: TaskView; content: Content }>()
  const asked: TaskRequest[] = []
  const receipts: ReceiptRequest[] = []
  const audits: { who: string; what: string; target: string }[] = []
  const keys = new Map<string, ApiKey>()
  const bugs: object[] = []
  const lookups = { keys: 0 }
  const paused = new Set<string>()
  const nudges = { count: 0 }
  const now = () => new Date()
  const rejected = [
    {
      id: '0199a1b2-c3d4-7e5f-8a6b-0123456789ab',
      taskNo: 'order-A-1',
      messageCode: 'order.paid',
      bodyBytes: 2,
      createdBy: 'sql:shop',
      createdAt: now().toISOString(),
      rejectedAt: now().toISOString(),
      problem: problemBody('UNKNOWN_CODE', 'order.paid')
    }
  ]
  const take = (id: string, codes: readonly string[] | null, who: string, what: string): boolean => {
    const at = rejected.findIndex(row => row.id === id && (!codes || codes.includes(row.messageCode)))
    if (at < 0) return false
    audits.push({ who, what, target: id })
    rejected.splice(at, 1)
    return true
  }

  /** Commits or rolls back a half message. */
  const end = (taskNo: string, who: string, status: 'SENDING' | 'CANCELLED') => {
    const task = stored.get(taskNo)?.task
    if (!task) return 'not_found'
    if (task.prepared === undefined) return 'not_prepared'
    if (task.status === 'PREPARED') {
      audits.push({ who, what: 'task.end', target: taskNo })
      task.status = status
    }
    if (task.status === status) return brief(task)
    return status === 'SENDING' ? 'rolled_back' : 'committed'
  }

  const operations = new Map<string, ReturnType<typeof operation> & { id: string }>()
  const limited: { concurrency?: number | null; perSecond?: number | null } = {}
  const operation = (filter: object, codes: readonly string[] | null, who: string) => ({
    codes,
    kind: 'redeliver',
    state: 'RUNNING',
    filter,
    matched: 1,
    redelivered: 1,
    skipped: 0,
    createdAt: now().toISOString(),
    createdBy: who,
    updatedAt: now().toISOString()
  })
  const shownOperation = ({ codes: _codes, ...one }: ReturnType<typeof operation> & { id: string }) => one
  const seenOperation = (id: string, codes: readonly string[] | null) => {
    const one = operations.get(id)
    return one && (codes === null || one.codes?.every(code => codes.includes(code))) ? one : null
  }

  const accept = (one: TaskRequest): AcceptResult => {
    if (['nobody.knows', 'order.piad'].includes(one.messageCode)) return { kind: 'unknown_code' }
    asked.push(one)
    const known = stored.get(one.taskNo)
    if (known)
      return isSameContent(known.content, one)
        ? { kind: 'same', task: brief(known.task) }
        : { kind: 'conflict' }
    const task: TaskView = {
      taskNo: one.taskNo,
      messageCode: one.messageCode,
      sceneType: one.sceneType,
      status: one.prepared ? 'PREPARED' : 'SENDING',
      createdAt: now().toISOString(),
      createdBy: one.createdBy,
      messageBody: one.messageBody,
      ...(one.extend === null ? {} : { extend: JSON.parse(one.extend) as unknown }),
      ...(one.prepared ? { prepared: { preparedAt: now().toISOString(), checks: 0 } } : {}),
      deliveries: [
        {
          downstream: 'warehouse',
          status: 'SENDING',
          phase: 'IN_FLIGHT',
          attempt: 1,
          triesLeft: 9,
          nextActionAt: now().toISOString(),
          attempts: [
            {
              attempt: 1,
              outcome: 'failed',
              reason: 'http_503',
              status: 503,
              request: { handlerVersion: '0badcafe', target: 'https://a.test/' },
              ms: 12,
              node: 'n',
              startedAt: now().toISOString()
            }
          ],
          receipts: []
        }
      ]
    }
    stored.set(one.taskNo, { task, content: one })
    return { kind: 'created', task: brief(task) }
  }

  const deps: ApiDeps = {
    accept: async one => accept(one),
    acceptMany: async many => many.map(accept),
    refusal: () => undefined,
    readTask: async taskNo => stored.get(taskNo)?.task ?? null,
    contents: async taskNos =>
      new Map(
        taskNos.flatMap(taskNo => {
          const known = stored.get(taskNo)
          return known ? [[taskNo, known.content]] : []
        })
      ),
    waitTask: async (taskNo, _owner, timeoutMs, signal) => {
      const end = performance.now() + timeoutMs
      while (!signal.aborted && performance.now() < end && stored.get(taskNo)?.task.status === 'SENDING') {
        await new Promise(resolve => setTimeout(resolve, 5))
      }
      return stored.get(taskNo)?.task ?? null
    },
    dryRun: async ({ messageCode, taskNo }) =>
      messageCode === 'order.paid' ? { messageCode, taskNo, downstreams: [] } : 'unknown_code',
    withRequests: async task => task,
    async requestNow(taskNo, downstream) {
      if (downstream !== 'warehouse') return { kind: 'not_found' }
      if (taskNo.startsWith('removed')) return { kind: 'no_handler' }
      if (taskNo.startsWith('throws')) return { kind: 'no_request', error: 'no price <b>' }
      return { taskNo, downstream, attempt: 2, handlerVersion: '0badcafe', headers: [] }
    },
    listTasks: async filter =>
      filter.cursor === 'nonsense'
        ? 'bad_cursor'
        : {
            tasks: [...stored.values()]
              .map(one => brief(one.task))
              .filter(task => !filter.messageCodes || filter.messageCodes.includes(task.messageCode))
              .slice(0, filter.limit),
            ...(stored.size > filter.limit ? { nextCursor: 'more' } : {})
          },
    remove: async (taskNo, who) => {
      const task = stored.get(taskNo)?.task
      if (!task) return 'not_found'
      if (task.status !== 'SENDING') return 'nothing'
      audits.push({ who: who.name, what: 'task.delete', target: taskNo })
      task.status = 'DELETED'
      return task
    },
    redeliver: async ({ taskNo, force, who }) => {
      const task = stored.get(taskNo)?.task
      if (!task) return 'not_found'
      if (task.status !== 'FAILED' && !force) return 'nothing'
      audits.push({ who: who.name, what: 'task.redeliver', target: taskNo })
      task.status = 'SENDING'
      return task
    },
    push: async ({ taskNo, who }) => {
      const task = stored.get(taskNo)?.task
      if (!task) return 'not_found'
      if (task.deliveries[0]?.phase === 'BLOCKED') return 'blocked'
      if (task.deliveries[0]?.phase !== 'WAITING') return 'nothing'
      audits.push({ who: who.name, what: 'task.push', target: taskNo })
      return task
    },
    settle: async ({ taskNo, who, status }) => {
      const task = stored.get(taskNo)?.task
      if (!task) return 'not_found'
      if (task.status !== 'SENDING' && task.status !== 'FAILED') return 'nothing'
      audits.push({ who: who.name, what: 'task.settle', target: taskNo })
      task.status = status
      return task
    },
    countFailed: async () => ({ matched: 12_000, partial: false }),
    redeliverAll: async ({ filter, messageCodes }, _counted, who) => {
      const one = { ...operation(filter, messageCodes, who.name), id: uuidv7() }
      operations.set(one.id, one)
      return shownOperation(one)
    },
    readOperation: async (id, codes) => {
      const one = seenOperation(id, codes)
      return one && shownOperation(one)
    },
    listOperations: async filter =>
      filter.cursor === 'nonsense'
        ? 'bad_cursor'
        : {
            operations: [...operations.values()]
              .filter(one => seenOperation(one.id, filter.messageCodes))
              .map(shownOperation)
          },
    listOperationDeliveries: async ({ id, messageCodes, cursor }) =>
      cursor === 'nonsense'
        ? 'bad_cursor'
        : seenOperation(id, messageCodes) && {
            deliveries: [
              {
                taskNo: 'order-A-1001',
                messageCode: 'order.paid',
                downstream: 'warehouse',
                result: 'redelivered',
                status: 'HANDLED',
                attempt: 2,
                failedAgain: false
              }
            ]
          },
    stopOperation: async ({ id, who }) => {
      const one = operations.get(id)
      if (one?.state !== 'RUNNING') return false
      audits.push({ who: who.name, what: 'operation.stop', target: id })
      one.state = 'STOPPED'
      return true
    },
    listAudit: async filter =>
      filter.cursor === 'nonsense'
        ? 'bad_cursor'
        : {
            audit: audits
              .filter(one => filter.target === undefined || one.target === filter.target)
              .map((one, at) => ({ id: String(at), at: now().toISOString(), ...one }))
          },
    listNodes: async () => [
      {
        id: 'host-1-a',
        roles: ['api', 'worker'],
        version: '1',
        live: true,
        startedAt: now().toISOString(),
        seenAt: now().toISOString(),
        yielded: [{ downstream: 'warehouse', until: now().toISOString(), reason: 'dns: ENOTFOUND' }]
      }
    ],
    setLimits: async (name, limits, who) => {
      if (name !== 'warehouse') return false
      audits.push({ who: who.name, what: 'downstream.limits', target: name })
      Object.assign(limited, limits)
      return true
    },
    commit: async (taskNo, who) => end(taskNo, who.name, 'SENDING'),
    rollBack: async (taskNo, who) => end(taskNo, who.name, 'CANCELLED'),
    check: async taskNo => {
      const known = stored.get(taskNo)
      if (!known) return 'not_found'
      return known.task.status === 'PREPARED' ? brief(known.task) : 'not_prepared'
    },
    receive: async receipt => {
      if (receipt.token !== 'good') return 'unauthorized'
      receipts.push(receipt)
      const task = stored.get(receipt.taskNo)?.task
      if (!task) return 'gone'
      if (task.messageCode !== receipt.messageCode) return 'wrong_code'
      if (task.status === 'DELETED') return 'deleted'
      if (receipt.downstream !== undefined && receipt.downstream !== 'warehouse') return 'wrong_downstream'
      const before = task.status
      task.status = 'HANDLED'
      return {
        kind: 'ok',
        taskNo: task.taskNo,
        status: 'HANDLED',
        applied: before !== 'HANDLED',
        ...(before === 'FAILED' ? { late: true } : {})
      }
    },
    listDeliveries: async filter =>
      filter.cursor === 'nonsense'
        ? 'bad_cursor'
        : {
            deliveries: [...stored.values()].flatMap(({ task }) =>
              task.deliveries.map(one => ({ taskNo: task.taskNo, messageCode: task.messageCode, ...one }))
            )
          },
    listAlarms: async filter => (filter.cursor === 'nonsense' ? 'bad_cursor' : { alarms: [] }),
    listOrderingKeys: async () => ({ keys: [] }),
    release: async ({ downstream, orderingKey, taskNo = 'order-A-1' }, who) => {
      if (taskNo !== 'order-A-1') return 'not_held'
      audits.push({ who: who.name, what: 'key.release', target: `${downstream} ${orderingKey}` })
      return { taskNo: 'order-A-1', messageCode: 'order.paid' }
    },
    reconcile: async question => (question.downstream === 'warehouse' ? { differences: [] } : 'not_found'),
    listRejected: async ({ messageCodes, limit }) => ({
      rejected: rejected
        .filter(row => !messageCodes || messageCodes.includes(row.messageCode))
        .slice(0, limit)
    }),
    retryRejected: async ({ id, messageCodes, who }) => take(id, messageCodes, who.name, 'outbox.retry'),
    removeRejected: async ({ id, messageCodes, who }) => take(id, messageCodes, who.name, 'outbox.delete'),
    nudge: () => {
      nudges.count++
    },
    listDownstreams: async () => [{ name: 'warehouse', paused: paused.has('warehouse'), ...limited }],
    pause: async (name, who) => {
      if (name !== 'warehouse') return false
      audits.push({ who: who.name, what: 'downstream.pause', target: name })
      paused.add(name)
      return true
    },
    resume: async (name, who) => {
      if (name !== 'warehouse') return false
      audits.push({ who: who.name, what: 'downstream.resume', target: name })
      paused.delete(name)
      return true
    },
    readStats: async () => [],
    listFailures: async () => ({ failures: [] }),
    archiveFailure: async () => true,
    createSession: async ({ hash: session, keyHash }) => {
      const key = keys.get(keyHash)
      if (key) keys.set(session, key)
      return key !== undefined
    },
    endSession: async session => void keys.delete(session),
    watchChanges: () => 'busy',
    listApiKeys: async () => ({ apiKeys: [] }),
    createApiKey: async ({ who, name }) => {
      audits.push({ who: who.name, what: 'key.created', target: name })
      return { id: 'key_0123456789ab', key: 'ack_0123456789abcdef' }
    },
    revokeApiKey: async () => false,
    resolveAlarm: async () => true,
    handlers: new Map([
      [
        'order.paid',
        {
          messageCode: 'order.paid',
          body: z.object({ orderId: z.string() }),
          downstreams: [
            {
              name: 'warehouse',
              transport: 'http',
              policy: { times: 10, receiptTimeoutMs: 60_000 },
              limit: { concurrency: 50, timeoutMs: 10_000 }
            }
          ]
        }
      ]
    ]),
    findKey: async hashed => {
      lookups.keys++
      return keys.get(hashed) ?? null
    },
    ready: async () => ({ ok: true, checks: { postgres: 'ok' } }),
    isFull: () => false,
    isDatabaseUnreachable: () => false,
    now,
    metrics: createMetrics({ processMetrics: false }),
    log: {
      error: fields => {
        bugs.push(fields)
      },
      warn: () => {}
    },
    auth: false,
    trustProxy: false,
    host: '127.0.0.1',
    publicUrl: 'http://ackbox.test'
  }
  const addKey = (secret: string, key: Partial<ApiKey>) => {
    keys.set(hash('sha256', secret, 'hex'), {
      id: secret,
      name: 'somebody',
      scopes: [],
      messageCodes: null,
      quotaId: key.id ?? secret,
      ...key
    })
  }
  return { deps, stored, asked, receipts, audits, bugs, lookups, nudges, rejected, keys, addKey }
}

export type Fake = ReturnType<typeof fakeService>

function brief(task: TaskView): TaskView {
  const copy = structuredClone(task)
  delete copy.messageBody
  for (const delivery of copy.deliveries) {
    delete delivery.attempts
    delete delivery.receipts
  }
  return copy
}

/** The API over a fake service. The teardown closes it, and fails if the API reported a bug during the test. */
export async function api(
  t: Test,
  change: Partial<ApiDeps> = {},
  limits: Partial<ConnectionLimits> = {}
): Promise<
  Fake & { app: App; post: (body: unknown, headers?: Record<string, string>) => ReturnType<typeof inject> }
> {
  const fake = fakeService()
  Object.assign(fake.deps, change)
  // A busy machine must not be told from a full process: only test/api/overload is about that.
  const app = await buildApp(fake.deps, undefined, { loopDelayMs: 600_000, ...limits })
  t.teardown(() => app.close())
  t.teardown(() => {
    if (fake.bugs.length > 0) throw new Error('the API met a bug of ours', { cause: fake.bugs })
  })
  return { ...fake, app, post: (body, headers) => inject(app, '/tasks', body, headers) }
}

/** Sends strings and bytes unchanged, and everything else as JSON. */
export async function inject(app: App, url: string, body: unknown, headers: Record<string, string> = {}) {
  const payload = typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body)
  return app.inject({
    method: 'POST',
    url,
    payload,
    headers: { 'content-type': 'application/json', ...headers }
  })
}

export const order = { messageCode: 'order.paid', messageBody: { orderId: 'A-1', cents: 4200 } }

export async function listening(
  t: Test,
  change: Partial<ApiDeps> = {},
  limits: Partial<ConnectionLimits> = {}
) {
  const made = await api(t, change, limits)
  await made.app.listen({ host: '127.0.0.1', port: 0 })
  const address = made.app.server.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  return { ...made, port: address.port, origin: `http://127.0.0.1:${address.port}` }
}
