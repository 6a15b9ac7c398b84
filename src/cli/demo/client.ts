import { once } from 'node:events'
import { Agent, request as httpRequest, type IncomingMessage } from 'node:http'
import { request as httpsRequest, Agent as SecureAgent } from 'node:https'
import { text } from 'node:stream/consumers'

export interface Reply {
  status: number
  headers: Record<string, string | string[] | undefined>
  body: unknown
}

/** A client of the service's API: keeps its connections, one try a call; the caller decides what to repeat. */
export interface Client {
  call(method: 'GET' | 'POST', path: string, body?: object): Promise<Reply>
  close(): void
}

export function openClient(options: {
  url: string
  key?: string
  sockets: number
  signal: AbortSignal
}): Client {
  const { url, key, sockets, signal } = options
  const secure = url.startsWith('https:')
  const agent = new (secure ? SecureAgent : Agent)({ keepAlive: true, maxSockets: sockets })
  const headers = { 'content-type': 'application/json', ...(key ? { authorization: `Bearer ${key}` } : {}) }
  return {
    close: () => agent.destroy(),
    async call(method, path, body) {
      const sent = (secure ? httpsRequest : httpRequest)(new URL(path, url), {
        method,
        agent,
        headers,
        signal,
        timeout: 35_000
      })
      sent.on('timeout', () => sent.destroy(new Error('no answer in 35 s')))
      sent.end(body && JSON.stringify(body))
      const [response] = (await once(sent, 'response')) as [IncomingMessage]
      const answer = await text(response)
      return { status: response.statusCode ?? 0, headers: response.headers, body: parsed(answer) }
    }
  }
}

function parsed(answer: string): unknown {
  try {
    return JSON.parse(answer)
  } catch {
    return answer
  }
}
