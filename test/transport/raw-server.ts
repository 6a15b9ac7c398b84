import { once } from 'node:events'
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import type { Test } from 'tap'

export interface Received {
  method: string
  path: string
  /** Names in lower case; bytes as latin1. */
  headers: Record<string, string>
  body: Buffer
  /** The exact bytes before the body. */
  head: string
}

/** Called for each whole request in order of arrival. `nth` counts from 1 over all sockets. */
export type Behave = (socket: Socket, request: Received, nth: number) => void

export interface RawServer {
  port: number
  url: string
  received: Received[]
  /** Sockets that are open now. */
  open: Set<Socket>
  close(): Promise<void>
}

/** A TCP server that reads HTTP requests and answers with the bytes that `behave` writes, if any. */
export async function rawServer(t: Test, behave: Behave, port = 0): Promise<RawServer> {
  const received: Received[] = []
  const open = new Set<Socket>()
  const server = createServer(socket => {
    open.add(socket)
    socket
      .setNoDelay(true)
      .on('error', () => {})
      .on('close', () => open.delete(socket))
    let buffered = Buffer.alloc(0)
    socket.on('data', data => {
      buffered = Buffer.concat([buffered, data])
      for (let next = readRequest(buffered); next; next = readRequest(buffered)) {
        buffered = buffered.subarray(next.size)
        behave(socket, next.request, received.push(next.request))
      }
    })
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  const close = closer(server, open)
  t.teardown(close)
  const at = (server.address() as AddressInfo).port
  return { port: at, url: `http://127.0.0.1:${at}/hook`, received, open, close }
}

function closer(server: Server, open: Set<Socket>): () => Promise<void> {
  return async () => {
    for (const socket of open) socket.destroy()
    if (!server.listening) return
    server.close()
    await once(server, 'close')
  }
}

function readRequest(bytes: Buffer): { request: Received; size: number } | undefined {
  const end = bytes.indexOf('\r\n\r\n')
  if (end < 0) return undefined
  const head = bytes.toString('latin1', 0, end)
  const [start = '', ...lines] = head.split('\r\n')
  const headers: Record<string, string> = {}
  for (const line of lines)
    headers[line.slice(0, line.indexOf(':')).toLowerCase()] = line.slice(line.indexOf(':') + 1).trim()
  const size = end + 4 + Number(headers['content-length'] ?? 0)
  if (bytes.length < size) return undefined
  const [method = '', path = ''] = start.split(' ')
  return { request: { method, path, headers, body: bytes.subarray(end + 4, size), head }, size }
}

/** A whole, well-formed answer. */
export function answer(status: number, body = '', headers: Record<string, string> = {}): string {
  const lines = Object.entries({ 'content-length': String(Buffer.byteLength(body)), ...headers }).map(
    ([k, v]) => `${k}: ${v}\r\n`
  )
  return `HTTP/1.1 ${status} Whatever\r\n${lines.join('')}\r\n${body}`
}
