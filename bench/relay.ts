// What nobody can beat on this machine: Fastify in front, undici behind, nothing kept in between.
// BENCH_RECEIPTS: it asks for receipts, and nothing becomes of them either.
import fastify from 'fastify'
import { Pool } from 'undici'
import { serve } from './child.ts'

const { BENCH_SINK = '', BENCH_RECEIPTS } = process.env
const sink = new Pool(BENCH_SINK, { connections: 200 })
let asking: Record<string, string> = {}
const app = fastify()
app.post<{ Body: { taskNo: string; messageBody: object } }>('/tasks', async (request, reply) => {
  const { taskNo, messageBody } = request.body
  const headers = { 'content-type': 'application/json', 'ackbox-task-no': taskNo, ...asking }
  const answer = await sink.request({ path: '/', method: 'POST', headers, body: JSON.stringify(messageBody) })
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
