import { execFile } from 'node:child_process'
import { mkdir, symlink, writeFile } from 'node:fs/promises'
import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import { plainNode } from '../support/service.ts'

// The project of a user: its own folder, `ackbox` in node_modules, a compiler as strict as ours.
const options = {
  target: 'es2023',
  module: 'nodenext',
  lib: ['es2023'],
  types: ['node'],
  strict: true,
  noEmit: true,
  skipLibCheck: true,
  noUncheckedIndexedAccess: true,
  exactOptionalPropertyTypes: true,
  customConditions: ['ackbox-source'],
  allowImportingTsExtensions: true
}
const head = "import { defineHandler, env, url, z } from 'ackbox/handler'\n"
const handler = (downstream: string, rest = '') => `${head}export default defineHandler({
  messageCode: 'order.paid',
  body: z.object({ orderId: z.string(), cents: z.int(), note: z.string().optional() }),
  downstreams: { warehouse: { ${downstream} } },${rest}
})
`
const request = "transport: 'http', request: ({ raw }) => ({ url: url`${env.WAREHOUSE_URL}/x`, body: raw })"

const good = {
  'good.ts': handler(
    `transport: 'http',
    request: ({ body, raw, task, attempt, deliveryId }) => ({
      url: url\`\${env.WAREHOUSE_URL}/orders/\${body.orderId}/paid\`,
      headers: { cents: body.cents.toFixed(0), n: attempt.toFixed(), id: deliveryId.trim(), no: task.taskNo.trim() },
      body: raw
    }),
    when: ({ task, body }) => task.sceneType === 'vip' && body.cents > 0,
    beforeSend: ({ body, attempt }) => (attempt > 3 ? { skip: true } : body.cents < 0 ? { postponeMs: 5 } : undefined),
    accepted: ({ status, json }, { body }) => status === 200 && json?.code === 0 && json?.data?.id === body.orderId,
    needCallback: true,
    receiptTimeout: '60s',
    retry: { times: 10, backoff: ['10s', '1m', 5_000] },
    limit: { concurrency: 50, perSecond: 200, timeout: '1.5s' }`,
    "\n  onReceipt: ({ receipt, body }) => (receipt.result === 'HANDLED' && body.cents > 9 ? 'RETRY' : undefined)"
  ),
  'queues.ts': handler(
    `transport: 'kafka', request: ({ body, raw }) => ({ topic: 'paid', key: body.orderId, value: raw }) },
    points: { transport: 'dubbo', request: ({ body }) => ({ service: 'a.Points', method: 'onPaid', args: [body] }),
      accepted: ({ json }) => json?.ok === true },
    http: { ${request}`
  ),
  'probe.ts': handler(
    `${request}, probe: { request: ({ task }) => ({ url: url\`\${env.SHOP_URL}/handled/\${task.taskNo}\` }),
      handled: ({ status, json }, { body }) => status === 200 && json?.handled, required: true },
    afterSend: async ({ outcome, body, attempt }) => { [outcome.reason?.trim(), outcome.ms.toFixed(), body.cents, attempt] } },
    points: { transport: 'dubbo', request: ({ body }) => ({ service: 'a.Points', method: 'onPaid', args: [body] }),
      probe: { request: ({ task }) => ({ service: 'a.Points', method: 'knows', args: [task.taskNo] }), handled: ({ json }) => json }`
  ),
  'custom.ts': handler(
    `transport: 'custom', needCallback: true, async send({ body, raw, task }, { signal, headers, timeoutMs }) {
      const sent = { to: body.orderId.trim(), raw, headers: headers(raw), aborted: signal.aborted, left: timeoutMs - 5, task }
      return sent.aborted ? { kind: 'failed', reason: 'away', retryAfterMs: 5 } : { kind: 'delivered', messageId: '7' }
    } },
    http: { ${request}`,
    '\n  onReceipt: ({ receipt, body }) => ({ result: receipt.result, extend: { cents: body.cents } })'
  ),
  'async.ts': handler(
    "transport: 'http', request: async ({ body }) => ({ url: url`https://a.example/${body.orderId}` }), beforeSend: async () => {}",
    '\n  onReceipt: async () => {}'
  )
}

// Each bad file, and the text that its one error must have: the wrong word and the right word.
const bad: Record<string, [source: string, says: RegExp]> = {
  'field.ts': [
    handler(`${request}, limits: { concurrency: 5 }`),
    /'limits' does not exist.*Did you mean to write 'limit'\?/
  ],
  'deep-field.ts': [
    handler(`${request}, limit: { concurency: 5 }`),
    /'concurency' does not exist.*Did you mean to write 'concurrency'\?/
  ],
  'retry-field.ts': [
    handler(`${request}, retry: { time: 5 }`),
    /'time' does not exist.*Did you mean to write 'times'\?/
  ],
  'top-field.ts': [
    handler(request, '\n  onReciept: () => {}'),
    /'onReciept' does not exist.*Did you mean to write 'onReceipt'\?/
  ],
  'transport.ts': [
    handler(request.replace("'http'", "'htp'")),
    /Type '"htp"' is not assignable.*Did you mean '"http"'/
  ],
  'no-transport.ts': [handler(request.replace("transport: 'http', ", '')), /Property 'transport' is missing/],
  'no-request.ts': [handler("transport: 'http'"), /Property 'request' is missing/],
  'no-topic.ts': [
    handler("transport: 'kafka', request: ({ raw }) => ({ value: raw })"),
    /Property 'topic' is missing.*KafkaRequest/s
  ],
  'queue-answers.ts': [
    handler(
      "transport: 'nats', request: ({ raw }) => ({ subject: 'paid', payload: raw }), accepted: () => true"
    ),
    /not assignable to type 'undefined'|'never'/
  ],
  'no-url.ts': [
    handler("transport: 'http', request: ({ raw }) => ({ body: raw })"),
    /Property 'url' is missing.*HttpRequest/s
  ],
  'duration.ts': [
    handler(`${request}, receiptTimeout: '60 sec'`),
    /Type '"60 sec"' is not assignable to type .*\$\{number\}s/
  ],
  'backoff.ts': [
    handler(`${request}, retry: { backoff: 'exponental' }`),
    /Type '"exponental"' is not assignable.*Did you mean '"exponential"'\?/
  ],
  'body-in-request.ts': [
    handler("transport: 'http', request: ({ body }) => ({ url: url`https://a.example/${body.orderID}` })"),
    /'orderID' does not exist on type '\{ orderId: string;.*Did you mean 'orderId'\?/s
  ],
  'body-in-when.ts': [
    handler(`${request}, when: ({ body }) => body.cents === 'many'`),
    /types 'number' and 'string' have no overlap/
  ],
  'body-in-before-send.ts': [
    handler(`${request}, beforeSend: ({ body }) => { body.note.trim() }`),
    /'body.note' is possibly 'undefined'/
  ],
  'body-in-accepted.ts': [
    handler(`${request}, accepted: (_, { body }) => body.cents`),
    /Type 'number' is not assignable to type 'Verdict'/
  ],
  'body-in-receipt.ts': [
    handler(request, '\n  onReceipt: ({ body }) => { body.cents.trim() }'),
    /'trim' does not exist on type 'number'/
  ],
  'receipt-result.ts': [
    handler(request, "\n  onReceipt: () => 'DONE'"),
    /'"DONE"' is not assignable.*"HANDLED".*"RETRY"/s
  ],
  'before-send.ts': [
    handler(`${request}, beforeSend: () => ({ postpone: 5 })`),
    /'\{ postpone: number; \}' is not assignable.*postponeMs: number/s
  ],
  'custom-outcome.ts': [
    handler("transport: 'custom', send: async ({ body }) => ({ kind: 'sent', to: body.orderId })"),
    /"sent"/
  ],
  'no-send.ts': [handler("transport: 'custom'"), /Property 'send' is missing/],
  'probe-of-a-queue.ts': [
    handler(
      "transport: 'nats', request: ({ raw }) => ({ subject: 'paid', payload: raw }), probe: { request: () => ({ subject: 'a' }), handled: () => true }"
    ),
    /not assignable to type 'undefined'|'never'/
  ],
  'no-body.ts': [
    `${head}export default defineHandler({ messageCode: 'a', downstreams: { w: { ${request} } } })`,
    /Property 'body' is missing/
  ]
}

t.test('the compiler teaches how to write a handler', async t => {
  const folder = t.testdir({})
  const root = projectRoot()
  await mkdir(join(folder, 'node_modules'))
  await symlink(root, join(folder, 'node_modules/ackbox'))
  await symlink(join(root, 'node_modules/@types'), join(folder, 'node_modules/@types'))
  const files = {
    ...good,
    ...Object.fromEntries(Object.entries(bad).map(([name, [source]]) => [name, source]))
  }
  await Promise.all(Object.entries(files).map(([name, source]) => writeFile(join(folder, name), source)))
  await writeFile(join(folder, 'package.json'), '{ "type": "module" }')
  await writeFile(
    join(folder, 'tsconfig.json'),
    JSON.stringify({ compilerOptions: options, files: Object.keys(files) })
  )

  const said = await compile(join(root, 'node_modules/typescript/bin/tsc'), folder)
  // An error is a line that starts with its file, and the indented lines under it.
  const errors = said.split(/\n(?=\S)/)
  const of = (file: string) => errors.filter(error => error.startsWith(`${file}(`))

  for (const file of Object.keys(good)) t.same(of(file), [], `${file} compiles`)
  for (const [file, [, says]] of Object.entries(bad)) {
    t.equal(of(file).length, 1, `${file}: one error, not a heap\n${of(file).join('\n')}`)
    t.match(of(file).join('\n'), says, `${file} says what was meant`)
  }
  // hessian.js has no types. Our declaration of it is part of this clone's own tsconfig; the package ships declarations alone.
  const others = errors.filter(error => !((error.split('(')[0] ?? '') in files))
  t.same(
    others.filter(error => !error.startsWith('../../../src/transport/dubbo/hessian.ts(')),
    [],
    'nothing else is wrong'
  )
})

function compile(tsc: string, folder: string): Promise<string> {
  const [env, ...words] = [...plainNode, tsc, '-p', folder, '--pretty', 'false']
  return new Promise((resolve, reject) => {
    execFile(env ?? '', words, { cwd: folder }, (_, stdout, stderr) =>
      stdout.trim() === '' && stderr !== '' ? reject(new Error(stderr)) : resolve(stdout.trim())
    )
  })
}

function projectRoot(): string {
  let folder = import.meta.dirname
  // The folder with the sources, also if this test runs compiled.
  while (!existsSync(join(folder, 'src/handler/define.ts')) && folder !== dirname(folder))
    folder = dirname(folder)
  return folder === '/' ? process.cwd() : folder
}
