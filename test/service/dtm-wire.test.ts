// The exact bytes of DTM's clients for Go and PHP, down to the escapes of their JSON and the lines of their HTTP.
import { once } from 'node:events'
import { connect } from 'node:net'
import t, { type Test } from 'tap'
import { dtmTaskNo } from '../../src/handler/dtm.ts'
import { only } from '../support/only.ts'
import { settled, start, type Process } from '../support/service.ts'
import { stage, type Stage } from '../support/stage.ts'

t.setTimeout(600_000)

/** The origin in the recorded texts. The origin of the sink replaces it. */
const recorded = 'http://127.0.0.1:18081'

/** dtm-labs/client: fields in the order of its struct, empty fields omitted except two, HTML escaped, in a payload twice. */
const goBodies = {
  prepare: String.raw`{"gid":"gid-of-go","trans_type":"msg","timeout_to_fail":60,"concurrent":false,"steps":[{"action":"http://127.0.0.1:18081/TransIn?a=1\u0026b=2"},{"action":"http://127.0.0.1:18081/TransOut"}],"payloads":["{\"amount\":30,\"note\":\"\\u003c支付\\u003e \\u0026 \\\"x\\\"\"}","{\"amount\":30.5}"],"query_prepared":"http://127.0.0.1:18081/QueryPrepared","protocol":""}`,
  submit: String.raw`{"gid":"gid-of-go","trans_type":"msg","custom_data":"{\"delay\":1}","timeout_to_fail":60,"concurrent":false,"steps":[{"action":"http://127.0.0.1:18081/TransIn?a=1\u0026b=2"},{"action":"http://127.0.0.1:18081/TransOut"}],"payloads":["{\"amount\":30,\"note\":\"\\u003c支付\\u003e \\u0026 \\\"x\\\"\"}","{\"amount\":30.5}"],"query_prepared":"http://127.0.0.1:18081/QueryPrepared","protocol":""}`
}

/** The PHP client: slashes and non-ASCII characters escaped; branch headers are an empty list if there are none. */
const phpBodies = {
  prepare: String.raw`{"gid":"gid-of-php","trans_type":"msg","steps":[{"action":"http:\/\/127.0.0.1:18081\/TransIn"}],"payloads":["{\"amount\":30,\"note\":\"\u652f\u4ed8\"}"],"query_prepared":"http:\/\/127.0.0.1:18081\/QueryPrepared","wait_result":false,"branch_headers":[]}`,
  submit: String.raw`{"gid":"gid-of-php","trans_type":"msg","steps":[{"action":"http:\/\/127.0.0.1:18081\/TransIn"}],"payloads":["{\"amount\":30,\"note\":\"\u652f\u4ed8\"}"],"query_prepared":"http:\/\/127.0.0.1:18081\/QueryPrepared","wait_result":false,"branch_headers":[]}`,
  abort: '{"gid":"gid-of-php","trans_type":"msg","branch_headers":[]}'
}

const heads = {
  go: (host: string, bytes: number) =>
    `Host: ${host}\r\nUser-Agent: go-resty/2.7.0 (https://github.com/go-resty/resty)\r\nContent-Length: ${bytes}\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n`,
  php: (host: string, bytes: number) =>
    `Content-Length: ${bytes}\r\nUser-Agent: GuzzleHttp/7\r\nContent-Type: application/json\r\nHost: ${host}\r\n`
}

/** Sends these bytes. Returns the parts of the answer. */
async function exchange(
  { url }: Process,
  client: keyof typeof heads,
  operation: string,
  body: string
): Promise<{ status: number; body: string; head: string }> {
  const { host, hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  await once(socket, 'connect')
  const bytes = Buffer.from(body)
  const head = heads[client](host, bytes.length)
  socket.write(
    Buffer.concat([
      Buffer.from(`POST /api/dtmsvr/${operation} HTTP/1.1\r\n${head}Connection: close\r\n\r\n`),
      bytes
    ])
  )
  const parts: Buffer[] = []
  for await (const part of socket) parts.push(part as Buffer)
  const said = Buffer.concat(parts).toString()
  const end = said.indexOf('\r\n\r\n')
  return { status: Number(said.slice(9, 12)), head: said.slice(0, end), body: said.slice(end + 4) }
}

async function world(t: Test): Promise<{ on: Stage; one: Process; at: (text: string) => string }> {
  const on = await stage(t, {})
  if (!on) throw new Error('no stage')
  const one = await start(t, { ...on.env, DTM: 'on', DTM_TARGETS: `sink=${on.downstream.url}` })
  const escaped = (text: string): string => text.replaceAll('/', '\\/')
  const at = (text: string): string =>
    text.replaceAll(recorded, on.downstream.url).replaceAll(escaped(recorded), escaped(on.downstream.url))
  return { on, one, at }
}

const success = '{"dtm_result":"SUCCESS"}'

t.test('what the client for Go sends is taken, and its payloads arrive byte for byte', async t => {
  const { on, one, at } = await world(t)
  for (const operation of ['prepare', 'prepare', 'submit', 'submit'] as const) {
    const { status, body, head } = await exchange(one, 'go', operation, at(goBodies[operation]))
    t.same([status, body], [200, success], operation)
    t.match(head, /content-type: application\/json/i)
    t.notMatch(head, /content-encoding/i)
  }
  for (const branch of ['01', '02'])
    t.equal((await settled(one.url, dtmTaskNo('gid-of-go', branch))).body?.['status'], 'HANDLED')
  t.match(
    on.downstream.requests,
    only(
      {
        path: '/TransIn?a=1&b=2&gid=gid-of-go&trans_type=msg&branch_id=01&op=action',
        body: String.raw`{"amount":30,"note":"\u003c支付\u003e \u0026 \"x\""}`
      },
      { path: '/TransOut?gid=gid-of-go&trans_type=msg&branch_id=02&op=action', body: '{"amount":30.5}' }
    )
  )
  const late = await exchange(one, 'go', 'abort', at(goBodies.submit))
  t.equal(late.status, 409)
  t.match(late.body, 'FAILURE', 'which the client looks for in the text')
})

t.test('what the client for PHP sends is taken, and it finds its dtm_result in each answer', async t => {
  const { on, one, at } = await world(t)
  const php = async (operation: keyof typeof phpBodies): Promise<unknown> => {
    const { status, body } = await exchange(one, 'php', operation, at(phpBodies[operation]))
    // Guzzle throws on any other status, before the client reads the body.
    if (status !== 200) return status
    t.equal(body, success, operation)
    return (JSON.parse(body) as { dtm_result?: unknown }).dtm_result
  }
  t.equal(await php('prepare'), 'SUCCESS')
  t.equal(await php('submit'), 'SUCCESS')
  t.equal((await settled(one.url, dtmTaskNo('gid-of-php', '01'))).body?.['status'], 'HANDLED')
  t.match(on.downstream.requests, only({ body: '{"amount":30,"note":"支付"}' }))
  t.equal(await php('abort'), 409)
})
