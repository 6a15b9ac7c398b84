// Clients that use up descriptors and connections. A process with few of both stays alive, reports its health and works on.
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import path from 'node:path'
import t, { type Test } from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import { program } from '../support/program.ts'
import { call, plainNode } from '../support/service.ts'
import { stage } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(600_000)

const main = path.resolve(import.meta.dirname, '../../src/main.js')

/** A process that may open 256 files, connections included. */
async function poor(t: Test) {
  const on = await stage(t)
  if (!on) return null
  const port = await freePort()
  const args = ['-c', 'ulimit -n 256 && exec "$@"', 'sh', ...plainNode, main]
  const service = program(t, 'sh', args, { env: { ...on.env, PORT: String(port) } })
  await service.said(/"msg":"ready"/)
  const open = (): Socket => {
    const socket = connect(port, '127.0.0.1')
    socket.on('error', () => {})
    t.teardown(() => socket.destroy())
    return socket
  }
  const url = `http://127.0.0.1:${port}`
  let posted = 0
  return {
    url,
    open,
    descriptors: () => readdirSync(`/proc/${service.pid}/fd`).length,
    healthy: async () => (await call(`${url}/healthz`).catch(() => null))?.status === 200,
    taken: async () => {
      const task = { taskNo: `t-${posted++}`, messageCode: 'test.plain', messageBody: { n: 1 } }
      return (await call(`${url}/tasks`, task).catch(() => null))?.status === 201
    }
  }
}

t.test('whoever asks for the pages of the docs and does not read opens no files', async t => {
  const service = await poor(t)
  if (!service) return
  await until('it has its connections', service.taken)
  const before = service.descriptors()
  const asking = 'GET /docs/static/swagger-ui-bundle.js HTTP/1.1\r\nHost: a\r\nx-pad: 12345678\r\n\r\n'
  const sockets = [1, 2, 3].map(() => service.open())
  for (const socket of sockets) {
    socket.write(asking.repeat(3_000))
    await once(socket, 'data')
    socket.pause()
  }
  for (let n = 0; n < 10; n++) t.equal(await service.healthy(), true)
  const more = service.descriptors() - before
  t.ok(more < 20, `${more} descriptors for 3 connections`)
  for (const socket of sockets) socket.destroy()
  await until('they are given back', () => service.descriptors() <= before + 5)
  await until('a task is taken', service.taken)
})

t.test('beside more idle connections than there are descriptors a producer is served', async t => {
  const service = await poor(t)
  if (!service) return
  const crowd = Array.from({ length: 600 }, service.open)
  const arrived = (socket: Socket) =>
    new Promise<void>(resolve => {
      for (const name of ['connect', 'close']) socket.once(name, () => resolve())
    })
  await Promise.all(crowd.map(arrived))
  t.equal(await service.healthy(), true)
  await until('a task is taken', service.taken)
  t.ok(service.descriptors() < 220, 'and the rest of the process has descriptors left')
  for (const socket of crowd) socket.destroy()
  await until('a task is taken', service.taken)
})
