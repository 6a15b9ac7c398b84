import { EventEmitter, once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { startLoad } from '../../chaos/load.ts'
import { until } from '../support/until.ts'

/** One task, or those at `times`, posted to a service that answers as `answer` says. */
async function postOne(
  t: Test,
  answer: (response: ServerResponse) => void,
  { times = [1], due }: { times?: number[]; due?: (atMs: number) => Promise<void> } = {}
) {
  const server = createServer((_, response) => answer(response)).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close().closeAllConnections())
  const load = startLoad({
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    headers: {},
    planned: times.map(atMs => ({ atMs, taskNo: `at-${atMs}`, messageCode: 'chaos.plain', body: '{}' })),
    mend: async () => {},
    stop: new AbortController().signal,
    ...(due && { due })
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

t.test('a task that is not due yet is posted later, and those after it too', async t => {
  let reach = (): void => {}
  const reached = new Promise<void>(resolve => (reach = resolve))
  let asked = 0
  const load = await postOne(t, response => response.writeHead(201).end('{}'), {
    times: [1, 2, 3],
    due: async atMs => {
      asked = atMs
      if (atMs >= 2) await reached
    }
  })
  await until('the second one is asked about', () => asked === 2)
  t.same(
    load.calls.map(one => one.taskNo),
    ['at-1']
  )
  reach()
  await load.posted
  t.same(
    load.calls.map(one => one.taskNo),
    ['at-1', 'at-2', 'at-3']
  )
  await load.answered(10_000)
})
