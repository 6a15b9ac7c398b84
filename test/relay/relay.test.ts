// Takes long: npm run test:long.
import { spawnSync } from 'node:child_process'
import { createServer, type ServerResponse } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import { only } from '../support/only.ts'
import { emptyDb } from '../support/postgres.ts'
import { program, type Program } from '../support/program.ts'
import { start } from '../support/service.ts'
import { stage } from '../support/stage.ts'
import { until } from '../support/until.ts'
import { bin, insert, kinds, producer, relay } from './producer.ts'

t.setTimeout(2_400_000)

/** A fake Ackbox that counts the accepted tasks by taskNo. `answer` may answer a request in its place. */
async function ackbox(t: Test, answer: (response: ServerResponse, nth: number) => boolean = () => false) {
  const taken = new Map<string, number>()
  const order: string[] = []
  const bodies: string[] = []
  let nth = 0
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const body = Buffer.concat(chunks).toString()
      const { tasks } = JSON.parse(body) as { tasks: { taskNo: string }[] }
      if (tasks.length > 0) bodies.push(body)
      if (answer(response, nth++)) return
      for (const { taskNo } of tasks) {
        if (!taken.has(taskNo)) order.push(taskNo)
        taken.set(taskNo, (taken.get(taskNo) ?? 0) + 1)
      }
      response.end(JSON.stringify({ results: tasks.map(({ taskNo }) => ({ taskNo, status: 201 })) }))
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, taken, order, bodies }
}

for (const kind of kinds) {
  t.test(`${kind}: what commits arrives and is delivered, what rolls back leaves nothing`, async t => {
    const on = await stage(t)
    const from = on && (await producer(t, kind))
    if (!from) return
    const service = await start(t, on.env)
    await from.run(insert([['kept', 'test.plain', '{"n": 1e0}', 'a key']]))
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
    await from.run(`update ackbox_outbox set delay_ms = 1, traceparent = '${traceparent}'`)
    await from.run(insert([['undone', 'test.plain', '{"n": 2}']]), 'rollback')
    const relaying = relay(t, from.url, service.url)
    await until('the first one is delivered', () => on.downstream.requests.length > 0)
    t.equal(on.downstream.requests[0]?.body, '{"n": 1e0}', 'the body is the very text of the row')
    t.equal(on.downstream.requests[0]?.headers['traceparent'], traceparent)
    t.match(on.downstream.requests[0]?.headers, { 'ackbox-sequence': /^\d{16}$/ }, 'and its key came along')
    await until('the outbox is empty', async () => (await from.waiting()) === 0)
    t.equal(on.downstream.count('undone'), 0)
    t.equal(await relaying.stop(), 0, 'SIGTERM ends it with 0')
  })

  t.test(
    `${kind}: a refused row keeps its problem, takes no other with it, and comes again on demand`,
    async t => {
      const on = await stage(t)
      const from = on && (await producer(t, kind))
      if (!from) return
      const service = await start(t, on.env)
      const large = JSON.stringify('x'.repeat(300_000))
      await from.run(
        insert([
          ['fine-1', 'test.plain', '{"n": 1}'],
          ['unknown', 'test.plian', '{"n": 3}'],
          ['twice', 'test.plain', '{"n": 1, "n": 2}'],
          ['large', 'test.plain', large],
          ['bad no', 'test.plain', '{"n": 1}'],
          ['fine-2', 'test.plain', '{"n": 2}']
        ])
      )
      await relay(t, from.url, service.url, '--once').said(/^6 rows left the outbox/)
      const problems = (await from.rejected()).map(row => {
        const { code, pointer } = JSON.parse(row.problem) as { code: string; pointer: string }
        return [row.task_no, code, pointer]
      })
      t.same(problems, [
        ['unknown', 'UNKNOWN_CODE', '/messageCode'],
        ['twice', 'NOT_I_JSON', '/messageBody/n'],
        ['large', 'BODY_TOO_LARGE', '/messageBody'],
        ['bad no', 'INVALID', '/taskNo']
      ])
      await until('the fine ones are delivered', () =>
        ['fine-1', 'fine-2'].every(taskNo => on.downstream.count(taskNo) === 1)
      )
      await from.run(
        `update ackbox_outbox_rejected set message_code = 'test.plain' where task_no = 'unknown'`
      )
      await relay(t, from.url, service.url, '--retry-rejected').said(
        /^4 rejected rows are in the outbox again/
      )
      await relay(t, from.url, service.url, '--once').said(/^4 rows left the outbox/)
      await until('the mended one is delivered', () => on.downstream.count('unknown') === 1)
      t.equal((await from.rejected()).length, 3)

      // An outbox that was truncated gives ids again that rejected rows have.
      const takeId = `update ackbox_outbox_rejected set id = (select max(id) from ackbox_outbox) where task_no = 'twice'`
      await from.run(
        insert([
          ['fine-3', 'test.plain', '{"n": 1}'],
          ['unknown-2', 'test.plian', '{"n": 3}']
        ])
      )
      await from.run(takeId)
      await relay(t, from.url, service.url, '--once').said(/^2 rows left the outbox/)
      t.equal((await from.rejected()).length, 4)
      await from.run(insert([['fine-4', 'test.plain', '{"n": 1}']]))
      await from.run(takeId)
      await relay(t, from.url, service.url, '--retry-rejected').said(
        /^4 rejected rows are in the outbox again/
      )
      await relay(t, from.url, service.url, '--once').said(/^5 rows left the outbox/)
      await until('all fine ones are delivered', () =>
        ['fine-3', 'fine-4'].every(taskNo => on.downstream.count(taskNo) === 1)
      )
    }
  )

  t.test(`${kind}: while Ackbox is away, or is none at all, every row stays; then all arrive`, async t => {
    type Fault = (response: ServerResponse) => void
    /** The relay then asks whether Ackbox is behind who answers, and gets the same. */
    const twice = (fault: Fault): Fault[] => [fault, fault]
    const faults: Fault[] = [
      response => void response.writeHead(503, { 'retry-after': '0' }).end('{}'),
      response => void response.writeHead(401).end('{}'),
      response => void response.destroy(),
      ...twice(response => void response.end('<html>')),
      response => void response.end('{"results":[]}'),
      ...twice(
        response => void response.writeHead(400).end('<html>The plain HTTP request was sent to HTTPS port')
      ),
      ...twice(
        response =>
          void response.writeHead(409, { 'content-type': 'application/json' }).end('{"message":"no"}')
      ),
      ...twice(response => void response.writeHead(451).end())
    ]
    const target = await ackbox(t, (response, nth) => {
      faults[nth]?.(response)
      return nth < faults.length
    })
    const from = await producer(t, kind)
    if (!from) return
    await from.run(insert(Array.from({ length: 20 }, (_, n) => [`n-${n}`, 'test.plain', '{}'])))
    await from.run('update ackbox_outbox set delay_ms = 60000')
    await relay(t, from.url, target.url, '--concurrency', '1').said(/relay.recovered/)
    await until('the outbox is empty', async () => (await from.waiting()) === 0)
    t.equal(target.taken.size, 20)
    t.equal(new Set(target.bodies).size, 1, 'what is posted again is the same, its delay too')
    t.same(await from.rejected(), [])
  })

  t.test(
    `${kind}: relays die of kill -9: every row arrives, and the rows of a key in their order`,
    async t => {
      const target = await ackbox(t)
      const from = await producer(t, kind)
      if (!from) return
      const rows = 2_000
      await from.run(
        insert(
          Array.from({ length: rows }, (_, n) => [
            `n-${n}`,
            'test.plain',
            '{}',
            n % 3 > 0 ? `key-${n % 7}` : null
          ])
        )
      )
      const running: Program[] = []
      for (let kills = 0; kills < 5; kills++) {
        const one = relay(t, from.url, target.url, '--batch', '20')
        running.push(one)
        await one.said(/relay.batch|relay.ready/)
        if (running.length > 2) await running.shift()?.stop('SIGKILL')
      }
      await until('the outbox is empty', async () => (await from.waiting()) === 0)
      t.equal(target.taken.size, rows)
      for (let key = 0; key < 7; key++) {
        const numbers = target.order
          .map(taskNo => Number(taskNo.slice(2)))
          .filter(n => n % 3 > 0 && n % 7 === key)
        t.ok(numbers.length > 100)
        t.same(
          numbers,
          numbers.toSorted((a, b) => a - b),
          `key ${key}`
        )
      }
    }
  )
}

t.test('it serves its health and metrics, and says in one line what it lacks', async t => {
  const target = await ackbox(t)
  const from = await producer(t, 'postgres')
  if (!from) return
  await from.run(insert([['one', 'test.plain', '{}']]))
  const port = await freePort()
  await relay(t, from.url, target.url, '--listen', `127.0.0.1:${port}`).said(/relay.batch/)
  await until('the row is counted', async () => {
    const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text()
    return (
      text.includes('ackbox_relay_rows_total{result="accepted"} 1') &&
      text.includes('ackbox_relay_waiting_rows 0')
    )
  })
  t.equal((await fetch(`http://127.0.0.1:${port}/healthz`)).status, 200)
  const lacking = spawnSync(
    process.execPath,
    [bin, 'relay', '--from', await emptyDb(t), '--to', target.url],
    { encoding: 'utf8' }
  )
  t.match(lacking, { status: 1, stderr: /--print-ddl postgres/ })
  const printing = program(t, process.execPath, [bin, 'relay', '--print-ddl', 'mysql'], { env: {} })
  await printing.said(/create table if not exists ackbox_outbox/)
})

t.test('postgres: a time of infinity is refused, and not left out', async t => {
  const on = await stage(t)
  const from = on && (await producer(t, 'postgres'))
  if (!from) return
  const service = await start(t, on.env)
  await from.run(
    insert([
      ['start', 'test.plain', '{"n": 1}'],
      ['before', 'test.plain', '{"n": 2}'],
      ['none', 'test.plain', '{"n": 3}']
    ])
  )
  await from.run("update ackbox_outbox set deliver_start_time = 'infinity' where task_no = 'start'")
  await from.run("update ackbox_outbox set deliver_before = '-infinity' where task_no = 'before'")
  await relay(t, from.url, service.url, '--once').said(/^3 rows left the outbox/)
  t.match(
    (await from.rejected()).map(row => [row.task_no, JSON.parse(row.problem) as unknown]),
    only(['start', { status: 422, code: 'INVALID' }], ['before', { status: 422, code: 'INVALID' }])
  )
  await until('the one without a time is delivered', () => on.downstream.count('none') === 1)
  t.equal(on.downstream.requests.length, 1)
})
