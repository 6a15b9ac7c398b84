import t from 'tap'
import { openConnection } from '../../src/transport/dubbo/classic-connection.ts'
import { flags, frameOf, frames } from '../../src/transport/dubbo/classic-frame.ts'
import { Failure } from '../../src/transport/failure.ts'
import { scriptedServer } from './scripted-server.ts'

const never = new AbortController().signal
const heartbeatMs = 40

t.test('a heartbeat that is never answered ends the connection and all calls on it', async t => {
  const provider = await scriptedServer(t, socket => socket.resume())
  const connection = await openConnection('127.0.0.1', provider.port, never, heartbeatMs)
  const started = performance.now()
  const answers = await Promise.all(
    Array.from({ length: 10 }, () => new Promise(resolve => connection.call(Buffer.from('N'), resolve)))
  )
  await connection.gone
  const took = performance.now() - started
  for (const answer of answers) {
    t.ok(answer instanceof Failure)
    t.match(answer, { outcome: { kind: 'failed', reason: 'connection_closed: no heartbeat' } })
  }
  t.ok(took > 2 * heartbeatMs, `after three of them: ${Math.round(took)} ms`)
  await provider.empty()
})

t.test('a provider that answers its heartbeats keeps a connection on which nothing else happens', async t => {
  let beats = 0
  let tell = (): void => {}
  const many = new Promise<void>(resolve => {
    tell = resolve
  })
  const provider = await scriptedServer(t, socket => {
    const parser = frames(1_000, ({ isRequest, isEvent, isTwoWay, id }) => {
      t.ok(isRequest && isEvent && isTwoWay)
      socket.write(frameOf(flags.event, 20, id, Buffer.from('N')))
      if (++beats === 10) tell()
    })
    socket.on('data', chunk => parser.push(chunk))
  })
  const connection = await openConnection('127.0.0.1', provider.port, never, heartbeatMs)
  await many
  t.equal(provider.open.size, 1)
  connection.end()
  await provider.empty()
})
