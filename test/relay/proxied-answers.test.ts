// What a proxy between makes of an answer of Ackbox: the relay and the command line read it.
import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { openClient } from '../../src/cli/client.ts'
import { postRows } from '../../src/relay/post.ts'
import { unreadableRow } from '../../src/relay/source.ts'

const answer = JSON.stringify({ results: [{ taskNo: 'one', status: 201 }] })
const head = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n'
const sized = (body: Buffer): Buffer[] => [Buffer.from(`content-length: ${body.length}\r\n\r\n`), body]
const zipped = [Buffer.from('Content-Encoding: gzip\r\n'), ...sized(gzipSync(answer))]

const answers = {
  'with 100 Continue that nobody asked for': Buffer.concat([
    Buffer.from(`HTTP/1.1 100 Continue\r\n\r\n${head}`),
    ...sized(Buffer.from(answer))
  ]),
  'in gzip that nobody asked for': Buffer.concat([Buffer.from(head), ...zipped]),
  'in gzip behind 100 Continue': Buffer.concat([
    Buffer.from(`HTTP/1.1 100 Continue\r\n\r\n${head}`),
    ...zipped
  ])
}

async function proxy(t: Test, bytes: Buffer): Promise<string> {
  const server = createServer(socket => {
    socket.on('error', () => {})
    let text = ''
    socket.on('data', chunk => {
      text += chunk.toString()
      // A request ends with its body of JSON.
      if (!text.endsWith('}')) return
      text = ''
      socket.write(bytes)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

for (const [what, bytes] of Object.entries(answers))
  t.test(`the relay and the command line read an answer ${what}`, async t => {
    const url = await proxy(t, bytes)
    const { problem: _, ...empty } = unreadableRow('1', new Error('none'), true)
    const row = { ...empty, taskNo: 'one', messageCode: 'a', messageBody: '1' }
    const stop = new AbortController()
    const client = openClient({ url, sockets: 1, signal: stop.signal })
    for (let times = 0; times < 2; times++) {
      t.same(await postRows({ url, key: undefined, timeoutMs: 10_000 }, [row]), [
        { kind: 'accepted', isNew: true }
      ])
      t.match(await client.call('POST', '/tasks/batch', {}), {
        status: 200,
        body: JSON.parse(answer) as object
      })
    }
    client.close()
  })
