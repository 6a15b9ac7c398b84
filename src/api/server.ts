import { METHODS, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { rawProblem } from './problem.ts'

/** Node's own limits are made for trusted peers: 60 s, 300 s, checked every 30 s, any number of connections. */
export const serverOptions = {
  headersTimeout: 10_000,
  requestTimeout: 15_000,
  connectionsCheckingInterval: 1_000,
  maxHeaderSize: 16_384,
  // request-checks.ts counts Hosts and answers with a problem; Node would answer without one.
  requireHostHeader: false
}
/** After so many requests the connection is closed. High, because Node answers requests pipelined beyond it with an empty 503. */
export const maxRequestsPerSocket = 100_000

export function guardServer(server: Server): void {
  server.on('checkExpectation', (_request: IncomingMessage, response: ServerResponse) => {
    response.socket?.end(rawProblem('EXPECTATION_FAILED'))
  })
}

/** The time for requests that still arrive when the server closes. */
const closingMs = 5_000

/** A closing server no longer checks for slow requests: a half-sent one would keep it open for ever. */
export function closeInTime(server: Server): void {
  const late = setTimeout(() => server.closeAllConnections(), closingMs)
  server.once('close', () => clearTimeout(late))
}

interface ParserError extends Error {
  code: string
  rawPacket: unknown
}

/** Input that is not a request: it gets a problem too, and the connection closes. */
export function onClientError(paths: Paths) {
  return (error: ParserError, socket: Socket): void => {
    if (error.code === 'ECONNRESET' || !socket.writable || answersAnother(socket)) {
      // A socket that ends already is left alone. Others are broken.
      if (!socket.writableEnded) socket.destroy()
      return
    }
    socket.end(answerTo(error, paths))
    // A peer that never closes its side would keep ours open.
    const patience = setTimeout(() => socket.destroy(), 1_000).unref()
    socket.once('close', () => clearTimeout(patience))
  }
}

/** An earlier request on this connection is not answered yet: bytes written now would be taken for its answer. */
function answersAnother(socket: Socket): boolean {
  // Node has no public property for this. Its own handler reads the same field.
  const { _httpMessage: open } = socket as Socket & { _httpMessage?: ServerResponse | null }
  return open !== undefined && open !== null && (open.headersSent || open.req.complete)
}

function answerTo({ code, rawPacket }: ParserError, paths: Paths): string {
  const line = Buffer.isBuffer(rawPacket) ? rawPacket.toString('latin1', 0, 16_384) : ''
  switch (code) {
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return rawProblem('TIMEOUT')
    case 'HPE_HEADER_OVERFLOW': {
      const end = line.indexOf('\n')
      return rawProblem(
        /^[A-Z]+ /.test(line) && (end < 0 || end > 8_192) ? 'URI_TOO_LONG' : 'HEADERS_TOO_LARGE'
      )
    }
    case 'HPE_CHUNK_EXTENSIONS_OVERFLOW':
      return rawProblem('BAD_REQUEST', {}, 'chunk extensions are too long')
    case 'HPE_INVALID_METHOD': {
      const [, method = '', target] =
        /^([!#$%&'*+.^_`|~\w-]{1,40}) (\/\S{0,8000}) HTTP\/1\.[01]\r?\n/.exec(line) ?? []
      if (target === undefined || METHODS.includes(method)) return rawProblem('BAD_REQUEST')
      const allowed = paths.allowed(target)
      return allowed === null ? rawProblem('NOT_FOUND') : rawProblem('METHOD_NOT_ALLOWED', { allow: allowed })
    }
    default:
      return rawProblem('BAD_REQUEST')
  }
}

/** The methods of each path, for 405 and its Allow. */
export function paths() {
  const known: { pattern: RegExp; url: string; methods: Set<string> }[] = []
  return {
    add(methods: string | string[], url: string) {
      const entry = known.find(one => one.url === url) ?? {
        url,
        pattern: patternOf(url),
        methods: new Set<string>()
      }
      if (entry.methods.size === 0) known.push(entry)
      for (const method of [methods].flat()) entry.methods.add(method)
    },
    /** Null: the path has no route with any method. */
    allowed(target: string): string | null {
      const path = target.split(/[?#]/, 1)[0] ?? ''
      const methods = known.filter(one => one.pattern.test(path)).flatMap(one => [...one.methods])
      return methods.length === 0 ? null : [...new Set(methods)].toSorted().join(', ')
    }
  }
}

type Paths = ReturnType<typeof paths>

function patternOf(url: string): RegExp {
  const parts = url
    .split('/')
    .map(part => (part === '*' ? '.*' : part.startsWith(':') ? '[^/]+' : part.replaceAll('.', '\\.')))
  return new RegExp(`^${parts.join('/')}$`)
}
