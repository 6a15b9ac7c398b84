// The minimum of HTTP/1.1 that the producers and the sink need. They share the cores with the measured service, and undici
// or node:http would use as much CPU as the relay itself. It works only with the benchmark's own peers.
import { connect, createServer, type Server, type Socket } from 'node:net'

interface Message {
  /** First line and headers, latin1. */
  head: string
  /** Bytes of head and body. */
  length: number
}

/** The first message in these bytes; undefined until it is complete. */
function read(bytes: Buffer): Message | undefined {
  const end = bytes.indexOf('\r\n\r\n', 0, 'latin1')
  if (end < 0) return undefined
  const head = bytes.toString('latin1', 0, end + 2)
  const body = /\r\ncontent-length: *(\d+)\r\n/i.exec(head)?.[1]
  if (body === undefined) throw new Error(`a message without content-length: ${head.slice(0, 100)}`)
  const length = end + 4 + Number(body)
  return length <= bytes.length ? { head, length } : undefined
}

/** Calls back for each complete message, however the network splits it. */
function reader(socket: Socket, onMessage: (head: string) => void): void {
  let rest: Buffer | undefined
  socket.on('data', (chunk: Buffer) => {
    let bytes = rest === undefined ? chunk : Buffer.concat([rest, chunk])
    for (let message = read(bytes); message !== undefined; message = read(bytes)) {
      bytes = bytes.subarray(message.length)
      onMessage(message.head)
    }
    rest = bytes.length > 0 ? bytes : undefined
  })
}

/** A header of the message; empty without it. All our peers write header names in lower case. */
export function field(head: string, name: string): string {
  const at = head.indexOf(`\r\n${name}: `)
  return at < 0 ? '' : head.slice(at + name.length + 4, head.indexOf('\r\n', at + 2))
}

/** Answers every request with an empty object, at once or after `afterMs`. */
export function answering(onRequest: (head: string) => void, afterMs = 0): Server {
  const answer = Buffer.from(
    'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}',
    'latin1'
  )
  return createServer({ noDelay: true }, socket => {
    socket.on('error', () => socket.destroy()) // a stopped variant resets its connections
    reader(socket, head => {
      onRequest(head)
      if (afterMs > 0) setTimeout(() => socket.write(answer), afterMs)
      else socket.write(answer)
    })
  })
}

/** The service asks to post again later: nothing is broken. */
export const isRefusal = (status: number): boolean => status === 429 || status === 503

/** One connection, one request at a time. `post` resolves with the status, or 0 if the connection broke. */
export function connection(target: URL) {
  let socket: Socket | undefined
  let answered = (_status: number) => {}
  const open = () => {
    const opened = connect({ host: target.hostname, port: Number(target.port), noDelay: true })
    reader(opened, head => answered(Number(head.slice(9, 12))))
    opened.on('error', () => opened.destroy())
    opened.on('close', () => {
      if (socket === opened) socket = undefined
      answered(0)
    })
    return opened
  }
  return {
    /** `more`: header lines, each with its end. */
    post(path: string, body: string, more = ''): Promise<number> {
      socket ??= open()
      const length = Buffer.byteLength(body)
      const head =
        `POST ${path} HTTP/1.1\r\nhost: ${target.host}\r\n${more}` +
        `content-type: application/json\r\ncontent-length: ${length}\r\n\r\n`
      return new Promise(resolve => {
        answered = resolve
        socket?.write(head + body)
      })
    },
    close: () => socket?.destroy()
  }
}
