// The upper bound on this machine: Fastify receives, undici sends, nothing is stored.
// BENCH_PIPELINING: requests per connection, as in handlers/bench.ts.
// BENCH_RECEIPTS: it requests receipts, and does not store them either.
import fastify from 'fastify'
import { Pool } from 'undici'
import { serve } from './child.ts'

const { BENCH_SINK = '', BENCH_PIPELINING = '1', BENCH_RECEIPTS } = process.env
const pipelining = Number(BENCH_PIPELINING)
const sink = new Pool(BENCH_SINK, { connections: Math.ceil(200 / pipelining), pipelining })
const shares = { idempotent: pipelining > 1, blocking: pipelining === 1 }
let asking: Record<string, string> = {}
const app = fastify()
app.post<{ Body: { taskNo: string; messageBody: object } }>('/tasks', async (request, reply) => {
  const { taskNo, messageBody } = request.body
  const headers = { 'content-type': 'application/json', 'ackbox-task-no': taskNo, ...asking }
  const body = JSON.stringify(messageBody)
  const answer = await sink.request({ path: '/', method: 'POST', headers, body, ...shares })
  await answer.body.dump()
  return reply.code(answer.statusCode === 200 ? 201 : 502).send({ taskNo })
})
app.post<{ Body: { taskNo: string } }>('/callback', async (request, reply) =>
  reply.send({ taskNo: request.body.taskNo })
)
const url = await app.listen({ host: '127.0.0.1', port: 0 })
if (BENCH_RECEIPTS !== undefined) {
  asking = {
    'ackbox-message-code': 'bench',
    'ackbox-callback-url': `${url}/callback`,
    'ackbox-callback-token': 'x'.repeat(80) // about as long as a real one
  }
}
serve({ url }, () => {})
