import { once } from 'node:events'
import { createServer } from 'node:net'
import t from 'tap'
import { freePort } from '../../src/embedded/port.ts'

t.test('ports are free, given once, and none that an outgoing connection may have', async t => {
  const ports = await Promise.all(Array.from({ length: 200 }, () => freePort()))
  t.equal(new Set(ports).size, 200)
  t.ok(Math.max(...ports) < 32_768)
  const server = createServer().listen(ports[0], '127.0.0.1')
  await once(server, 'listening')
  server.close()
})

t.test('the wanted one, or another where somebody listens there', async t => {
  const port = await freePort()
  t.equal(await freePort(port), port)
  const server = createServer().listen(port, '127.0.0.1')
  await once(server, 'listening')
  t.not(await freePort(port), port)
  server.close()
})
