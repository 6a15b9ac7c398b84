import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import path from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { freePort, randomPorts, takePort } from '../../src/embedded/port.ts'
import { badPorts } from '../../src/transport/egress/address.ts'

t.test('ports are free, given once, and none that an outgoing connection may have', async t => {
  const ports = await Promise.all(Array.from({ length: 200 }, () => freePort()))
  t.equal(new Set(ports).size, 200)
  t.ok(randomPorts.to < 32_768)
  t.ok(ports.every(port => port >= randomPorts.from && port <= randomPorts.to))
  const server = createServer().listen(ports[0], '127.0.0.1')
  await once(server, 'listening')
  server.close()
})

t.test('a send may go to each random port', t => {
  const { from, to } = randomPorts
  t.same(
    [...badPorts].filter(port => port >= from && port <= to),
    []
  )
  t.end()
})

t.test('the wanted one, or another where somebody listens there', async t => {
  const port = await freePort()
  t.equal(await freePort(port), port)
  const server = createServer().listen(port, '127.0.0.1')
  await once(server, 'listening')
  t.not(await freePort(port), port)
  server.close()
})

t.test('this very one is taken once, and not where somebody listens there', async t => {
  const given = await freePort()
  t.equal(await takePort(given), false, 'it was given already')
  let next = given + 1
  while (!(await takePort(next))) next++
  t.ok(next < given + 100)
  t.equal(await takePort(next), false, 'it was taken')
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.equal(await takePort((server.address() as AddressInfo).port), false, 'somebody listens there')
  server.close()
})

const noAbstract = process.platform === 'linux' ? false : 'only Linux has abstract sockets'
t.test('no port is given to two processes that live at once', { skip: noAbstract }, async t => {
  const ours = await Promise.all(Array.from({ length: 200 }, () => freePort()))
  // 800 of 7,000 ports: by chance alone, none of the 200 is among them once in 10,000,000,000 runs.
  const module = path.resolve(import.meta.dirname, '../../src/embedded/port.js')
  const draw = `
    import { freePort } from ${JSON.stringify(module)}
    const drawn = await Promise.all(Array.from({ length: 800 }, () => freePort()))
    console.log(JSON.stringify(drawn))`
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', draw])
  const drawn = JSON.parse(stdout) as number[]
  t.equal(drawn.length, 800)
  t.same(
    drawn.filter(port => ours.includes(port)),
    []
  )
})
