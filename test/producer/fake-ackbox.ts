// A fake Ackbox whose answers a test can script. It handles half messages as the real service does.
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'
import type { CheckAnswer, CheckRequest } from '../../src/producer/producer.ts'

export interface Seen {
  method: string
  path: string
  text: string
  headers: Record<string, string | string[] | undefined>
}
/** Answers the request and returns true, or leaves the answer to the fake. */
export type Script = (seen: Seen, response: ServerResponse, nth: number) => boolean | Promise<boolean>

export interface FakeAckbox {
  url: string
  seen: Seen[]
  status(taskNo: string): string | undefined
  /** Gets each request before the fake. */
  script: Script
  /** The producer's answer to a check. */
  check: (request: CheckRequest) => Promise<CheckAnswer>
}

export function answer(response: ServerResponse, status: number, body: unknown, headers = {}): boolean {
  response.writeHead(status, { 'content-type': 'application/json', ...headers })
  response.end(typeof body === 'string' ? body : JSON.stringify(body))
  return true
}

export async function fakeAckbox(t: Test): Promise<FakeAckbox> {
  const tasks = new Map<string, string>()
  const createdAt = new Date().toISOString()
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const text = Buffer.concat(chunks).toString()
      const seen = { method: request.method ?? '', path: request.url ?? '', text, headers: request.headers }
      fake.seen.push(seen)
      void reply(seen, response)
    })
  })
  const reply = async (seen: Seen, response: ServerResponse): Promise<unknown> => {
    if (await fake.script(seen, response, fake.seen.length)) return
    const task = (taskNo: string) => ({ taskNo, createdAt, status: tasks.get(taskNo), deliveries: [] })
    if (seen.path === '/tasks') {
      const { taskNo, prepared } = JSON.parse(seen.text) as { taskNo: string; prepared?: boolean }
      if (!tasks.has(taskNo)) tasks.set(taskNo, prepared ? 'PREPARED' : 'SENDING')
      return answer(response, 201, task(taskNo))
    }
    const [, taskNo = '', verb] = /^\/tasks\/([^/?]+)(?:\/(\w+))?/.exec(seen.path) ?? []
    if (verb === undefined || verb === 'redeliver') return answer(response, 200, task(taskNo))
    const wanted = { commit: 'SENDING', rollback: 'CANCELLED' }[verb]
    const { state } = wanted
      ? { state: wanted }
      : await fake.check({ taskNo, preparedAt: new Date().toISOString() })
    const next = { COMMITTED: 'SENDING', ROLLED_BACK: 'CANCELLED', UNKNOWN: 'PREPARED' }[state] ?? state
    if (tasks.get(taskNo) === 'PREPARED') tasks.set(taskNo, next)
    if (tasks.get(taskNo) === next) return answer(response, 200, task(taskNo))
    const code = next === 'SENDING' ? 'TASK_ROLLED_BACK' : 'TASK_COMMITTED'
    return answer(response, 409, { type: '', title: 'It ended otherwise', status: 409, code })
  }
  const fake: FakeAckbox = {
    url: '',
    seen: [],
    status: taskNo => tasks.get(taskNo),
    script: () => false,
    check: () => Promise.resolve({ state: 'UNKNOWN' })
  }
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  fake.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  t.teardown(async () => {
    server.closeAllConnections()
    await new Promise(resolve => server.close(resolve))
  })
  return fake
}
