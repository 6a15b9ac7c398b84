import { decodedText, tolerantAgent } from '../transport/http/tolerant-agent.ts'

export interface Reply {
  status: number
  headers: Record<string, string | string[] | undefined>
  body: unknown
}

/** A client of the service's API. It keeps its connections and tries each call once. The caller does the retries. */
export interface ApiClient {
  call(method: 'GET' | 'POST', path: string, body?: object): Promise<Reply>
  close(): void
}

export function openClient(options: {
  url: string
  key?: string
  sockets: number
  signal: AbortSignal
}): ApiClient {
  const { url, key, sockets, signal } = options
  const { origin, pathname } = new URL(url)
  // A proxy may serve the API below a path.
  const base = pathname.replace(/\/+$/, '')
  const agent = tolerantAgent({
    connections: sockets,
    headersTimeout: 35_000,
    bodyTimeout: 35_000
  })
  const headers = { 'content-type': 'application/json', ...(key ? { authorization: `Bearer ${key}` } : {}) }
  return {
    close: () => void agent.destroy(),
    async call(method, path, body) {
      const reply = await agent.request({
        origin,
        method,
        path: base + path,
        headers,
        body: body ? JSON.stringify(body) : null,
        signal
      })
      return {
        status: reply.statusCode,
        headers: reply.headers,
        body: parsed(await decodedText(reply.headers, reply.body))
      }
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
