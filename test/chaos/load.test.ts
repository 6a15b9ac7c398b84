import { EventEmitter, once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { startLoad } from '../../chaos/load.ts'

/** One task, posted to a service that answers as `answer` says. */
async function postOne(t: Test, answer: (response: ServerResponse) => void) {
  const server = createServer((_, response) => answer(response)).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close().closeAllConnections())
  const load = startLoad({
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    headers: {},
    planned: [{ atMs: 1, taskNo: 'a', messageCode: 'chaos.plain', body: '{}' }],
    mend: async () => {},
    stop: new AbortController().signal
  })
  t.teardown(() => load.end())
  return load
}

t.test('when the load gives up, the answer to a POST under way is still part of it', async t => {
  const seen = new EventEmitter()
  let posts = 0
  const load = await postOne(t, response => {
    if (++posts === 1) response.writeHead(503).end()
    else seen.emit('second', response)
  })
  const [second] = (await once(seen, 'second')) as [ServerResponse]
  const ended = load.answered(0)
  second.writeHead(201).end('{}')
  await ended
  t.same(
    load.calls.map(({ status, tries }) => [status, tries.map(one => one.status)]),
    [[201, [503, 201]]]
  )
})

t.test('when the load gives up, no POST is repeated', async t => {
  const seen = new EventEmitter()
  let posts = 0
  const load = await postOne(t, response => {
    posts++
    response.writeHead(503).end()
    seen.emit('refused')
  })
  await once(seen, 'refused')
  await load.answered(0)
  t.equal(posts, load.calls[0]?.tries.length)
  t.equal(load.calls[0]?.status, 503)
})
