// What nobody can beat on this machine: Fastify in front, undici behind, nothing kept in between.
import fastify from 'fastify'
import { Pool } from 'undici'
import { serve } from './child.ts'

const sink = new Pool(process.env.BENCH_SINK ?? '', { connections: 200 })
const app = fastify()
app.post<{ Body: { taskNo: string; messageBody: object } }>('/tasks', async (request, reply) => {
  const { taskNo, messageBody } = request.body
  const headers = { 'content-type': 'application/json', 'ackbox-task-no': taskNo }
  const answer = await sink.request({ path: '/', method: 'POST', headers, body: JSON.stringify(messageBody) })
  await answer.body.dump()
  return reply.code(answer.statusCode === 200 ? 201 : 502).send({ taskNo })
})
serve({ url: await app.listen({ host: '127.0.0.1', port: 0 }) }, () => {})
