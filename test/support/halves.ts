// The second phase of half messages on a story of test/support/setup.ts, and a producer that is checked over real HTTP.
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'
import type { TaskView } from '../../src/db/views.ts'
import { readTasks } from '../../src/db/read-tasks.ts'
import { producerAsker } from '../../src/delivery/ask-producer.ts'
import type { TaskRequest } from '../../src/delivery/accept.ts'
import { checker, type Checker, type CheckerDeps } from '../../src/delivery/checker.ts'
import { checkNow, commit, rollBack } from '../../src/delivery/half.ts'
import { createMetrics, type Metrics } from '../../src/runtime/metrics.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { httpTransport } from '../../src/transport/http/http.ts'
import { taskRequest } from './task-request.ts'
import { setup, type SetupOptions, type Story } from './setup.ts'

export interface SeenCheck {
  taskNo: string
  headers: IncomingHttpHeaders
  body: string
}

export interface Producer {
  url: string
  checks: SeenCheck[]
  /** Its answer: a state, a reply with a status and a body, or no answer ('hang'). */
  answer: (check: SeenCheck) => Reply | Promise<Reply>
  /** Resolves when this many checks have arrived. */
  checked(count: number): Promise<void>
}

export type Reply = 'COMMITTED' | 'ROLLED_BACK' | 'UNKNOWN' | 'hang' | Written

interface Written {
  status: number
  body: string | Uint8Array
  headers?: Record<string, string>
  /** An informational answer before it. */
  before?: '100 Continue'
}

export async function producer(t: Test, first: Producer['answer'] = () => 'UNKNOWN'): Promise<Producer> {
  const waiting: { count: number; resolve: () => void }[] = []
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const { headers } = request
      const seen = {
        taskNo: String(headers['ackbox-task-no']),
        headers,
        body: Buffer.concat(chunks).toString()
      }
      self.checks.push(seen)
      for (const waiter of waiting) if (self.checks.length >= waiter.count) waiter.resolve()
      void Promise.resolve(self.answer(seen)).then(reply => {
        if (reply === 'hang') return
        if (typeof reply === 'object') {
          if (reply.before) response.writeContinue()
          response.writeHead(reply.status, reply.headers).end(reply.body)
        } else response.writeHead(200).end(JSON.stringify({ state: reply }))
      })
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(async () => {
    server.closeAllConnections()
    await new Promise(resolve => server.close(resolve))
  })
  const self: Producer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/check`,
    checks: [],
    answer: first,
    checked: count =>
      new Promise(resolve => {
        if (self.checks.length >= count) resolve()
        else waiting.push({ count, resolve })
      })
  }
  return self
}

export interface Halves {
  deps: CheckerDeps
  checker: Checker
  metrics: Metrics
  /** Posts a half message. Returns its taskNo. */
  prepare(more?: Partial<TaskRequest>): Promise<string>
  /** One pass of the checker, until all its work is done. */
  look(): Promise<void>
  commit(taskNo: string, by?: string): ReturnType<typeof commit>
  rollBack(taskNo: string, by?: string): ReturnType<typeof rollBack>
  check(taskNo: string, by?: string): ReturnType<typeof checkNow>
  brief(taskNo: string): Promise<TaskView>
}

/** `handlers`: those of another process on the same story. */
export function halves(t: Test, story: Story, handlers = story.handlers): Halves {
  const transport = httpTransport({ guard: guard({ allow: undefined, embedded: true, deny: [] }) })
  const cutOff = new AbortController()
  const metrics = createMetrics({ processMetrics: false })
  const deps: CheckerDeps = {
    sql: story.sql,
    handlers,
    accept: story.accept,
    ask: producerAsker({
      handlers,
      transport,
      secret: 'a test secret',
      secretPrevious: undefined,
      concurrency: 16,
      cutOff: cutOff.signal,
      now: () => new Date()
    }),
    cluster: story.around,
    leaseMarginMs: 10_000,
    random: () => 0.5,
    metrics,
    log: story.log
  }
  const looking = checker(deps)
  t.teardown(async () => {
    cutOff.abort()
    await looking.idle()
    await transport.close()
  })
  return {
    deps,
    checker: looking,
    metrics,
    async prepare(more) {
      return await story.post({ prepared: { checkAfterMs: 35_000 }, ...more })
    },
    async look() {
      await looking.look()
      await looking.idle()
    },
    commit: (taskNo, by = 'test') => commit(deps, taskNo, by),
    rollBack: (taskNo, by = 'test') => rollBack(deps, taskNo, by),
    check: (taskNo, by = 'test') => checkNow(deps, taskNo, { name: by }),
    async brief(taskNo) {
      const found = (await readTasks(story.sql, [taskNo])).get(taskNo)
      if (!found) throw new Error(`no task ${taskNo}`)
      return found
    }
  }
}

/** A story whose handler checks half messages at this URL. */
export async function halfStory(
  t: Test,
  url: string,
  options: SetupOptions = {}
): Promise<{ story: Story; half: Halves }> {
  const story = await setup(t, { ...options, handler: { checkBack: () => ({ url }), ...options.handler } })
  return { story, half: halves(t, story) }
}

/** A half message as the API passes it to `accept`. */
export const preparedTask = (more: Partial<TaskRequest> = {}): TaskRequest =>
  taskRequest({ prepared: { checkAfterMs: 35_000 }, ...more })
