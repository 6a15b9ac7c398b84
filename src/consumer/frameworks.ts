// Entry points for HTTP frameworks. Each reads the bytes of a request before a parser does, and answers. No framework is imported.
import type { IncomingMessage, ServerResponse } from 'node:http'
import { AdapterError } from '../adapter/transaction.ts'
import { plain, type Answer, type HttpRequest, type Work } from './answer.ts'

export interface Frameworks<Native> {
  /** For `createServer` of node:http and node:https. */
  node(work: Work<Native>): (request: IncomingMessage, response: ServerResponse) => void
  /** `app.post('/paid', points.express(work))`. Register it before `express.json()`, or make that keep the bytes as `request.rawBody`. */
  express(work: Work<Native>): (request: IncomingMessage, response: ServerResponse) => void
  /** `app.post('/paid', points.fastify(work))`. It answers in onRequest, before Fastify parses the body. */
  fastify(work: Work<Native>): FastifyRoute
  /** For platforms with Request and Response: Hono, Next.js, Bun, Deno. */
  fetch(work: Work<Native>): (request: Request) => Promise<Response>
}

/** The options of a route, including its handler. */
export interface FastifyRoute {
  onRequest(this: unknown, request: FastifyRequest, reply: FastifyReply): Promise<unknown>
  handler(): Promise<unknown>
}
interface FastifyRequest {
  raw: IncomingMessage
}
interface FastifyReply {
  raw: ServerResponse
  code(status: number): unknown
  headers(headers: Record<string, string>): unknown
  send(body: string): unknown
}

type AnswerRequest<Native> = (request: HttpRequest, work: Work<Native>) => Promise<Answer>

export function frameworks<Native>(
  answer: AnswerRequest<Native>,
  maxBytes: number,
  onError: (err: unknown, about: { taskNo?: string | undefined }) => void
): Frameworks<Native> {
  const answered = async (
    headers: unknown,
    body: () => Promise<Uint8Array | undefined>,
    work: Work<Native>
  ): Promise<Answer> => {
    try {
      const bytes = await body()
      return bytes === undefined ? plain(413) : await answer({ headers, body: bytes }, work)
    } catch (err) {
      onError(err, {})
      return plain(500)
    }
  }
  const node =
    (work: Work<Native>) =>
    (request: IncomingMessage, response: ServerResponse): void => {
      answered(request.headers, () => bytesOf(request, maxBytes), work)
        .then(({ status, headers, body }) => {
          if (response.headersSent) throw new AnsweredBefore()
          // The rest of a body that is too long is not read.
          response.writeHead(status, status === 413 ? { connection: 'close' } : headers).end(body)
        })
        .catch((err: unknown) => onError(err, {}))
    }
  return {
    node,
    express: node,
    fastify: work => ({
      async onRequest({ raw }, reply) {
        const { status, headers, body } = await answered(raw.headers, () => bytesOf(raw, maxBytes), work)
        if (reply.raw.headersSent) {
          onError(new AnsweredBefore(), {})
          return reply
        }
        reply.code(status)
        reply.headers(status === 413 ? { connection: 'close' } : headers)
        reply.send(body)
        return reply
      },
      // Never called: onRequest has answered.
      handler: () => Promise.reject(new Error('This route is answered in onRequest.'))
    }),
    fetch: work => async request => {
      const { status, headers, body } = await answered(
        request.headers,
        async () => (request.body === null ? new Uint8Array() : await collect(request.body, maxBytes)),
        work
      )
      return new Response(body === '' ? null : body, { status, headers })
    }
  }
}

/** The work may be done all the same. Ackbox sends the delivery again, and then the answer is the stored result. */
class AnsweredBefore extends AdapterError {
  constructor() {
    super(
      'Something else has answered this request during the work, such as a timeout of the server. Keep deadlineMs below it.'
    )
  }
}

/** The bytes of the body. Undefined: more than `maxBytes`. */
async function bytesOf(request: IncomingMessage, maxBytes: number): Promise<Uint8Array | undefined> {
  // A destroyed request could not be answered 413.
  if (!request.readableEnded) return await collect(request.iterator({ destroyOnReturn: false }), maxBytes)
  const { rawBody, body } = request as { rawBody?: unknown; body?: unknown }
  const kept = rawBody ?? body
  if (kept instanceof Uint8Array) return kept
  if (typeof kept === 'string') return Buffer.from(kept)
  throw new Error(
    'The body of this request was already read, and the signature covers its exact bytes: register this route before express.json().'
  )
}

async function collect(stream: AsyncIterable<Uint8Array>, maxBytes: number): Promise<Uint8Array | undefined> {
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of stream) {
    size += chunk.length
    if (size > maxBytes) return undefined
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}
