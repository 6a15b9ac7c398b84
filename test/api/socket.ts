import { connect, type Socket } from 'node:net'
import { once } from 'node:events'

export interface RawAnswer {
  status: number
  headers: Record<string, string>
  body: string
}

/**
 * Writes the bytes unchanged. Reads until the server closes or `answers` answers have arrived. With `last` it sends nothing
 * after them, so that a server need not wait for more.
 */
export async function talk(
  port: number,
  bytes: string | Buffer,
  { answers = 1, last = false } = {}
): Promise<{ all: RawAnswer[]; closed: boolean }> {
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => {})
  await once(socket, 'connect')
  if (last) socket.end(bytes)
  else socket.write(bytes)
  const { text, closed } = await read(socket, so => parse(so).length >= answers)
  socket.destroy()
  return { all: parse(text), closed }
}

export async function read(
  socket: Socket,
  enough: (text: string) => boolean
): Promise<{ text: string; closed: boolean }> {
  let text = ''
  return await new Promise(resolve => {
    socket.on('data', chunk => {
      text += chunk.toString('latin1')
      if (enough(text)) resolve({ text, closed: false })
    })
    socket.on('close', () => resolve({ text, closed: true }))
  })
}

export function parse(text: string): RawAnswer[] {
  const found: RawAnswer[] = []
  let rest = text
  for (;;) {
    const end = rest.indexOf('\r\n\r\n')
    if (end < 0) return found
    const [first = '', ...lines] = rest.slice(0, end).split('\r\n')
    const headers = Object.fromEntries(
      lines.map(line => [
        line.slice(0, line.indexOf(':')).toLowerCase(),
        line.slice(line.indexOf(':') + 1).trim()
      ])
    )
    const length = Number(headers['content-length'] ?? 0)
    const body = rest.slice(end + 4, end + 4 + length)
    if (body.length < length) return found
    rest = rest.slice(end + 4 + length)
    if (!first.startsWith('HTTP/1.1 100')) found.push({ status: Number(first.split(' ')[1]), headers, body })
  }
}

export function request(line: string, headers: string[], body = ''): string {
  return [line, ...headers, '', body].join('\r\n')
}
