// Takes long: npm run test:long.
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import t from 'tap'

const program = path.resolve(import.meta.dirname, '../../src/cli/ackbox.js')

interface Ended {
  code: number | string
  out: string
  err: string
}

function tasks(url: string, ...args: string[]): Promise<Ended> {
  return run([program, 'tasks', ...args], url)
}

function tasksOnTerminal(url: string, ...args: string[]): Promise<Ended> {
  return run(['--import', 'data:text/javascript,process.stderr.isTTY=true', program, 'tasks', ...args], url)
}

function run(args: string[], url: string): Promise<Ended> {
  return new Promise(resolve => {
    const env = { PATH: process.env['PATH'], ACKBOX_URL: url }
    execFile(process.execPath, args, { env, cwd: '/' }, (error, out, err) =>
      resolve({ code: error?.code ?? 0, out, err })
    )
  })
}

const nobody = 'http://127.0.0.1:1'

t.test(
  'a word or an option that a command would leave out of account is refused before anything is asked',
  async t => {
    const refused: [said: RegExp, ...args: string[]][] = [
      [/^tasks redeliver --all does not take order-1\n/, 'redeliver', '--all', 'order-1'],
      [/^tasks redeliver --all does not take --force\n/, 'redeliver', '--all', '--force'],
      [/^tasks redeliver --all does not take --limit\n/, 'redeliver', '--all', '--limit', '5'],
      [/^tasks redeliver does not take --dry-run\n/, 'redeliver', 'order-1', '--dry-run'],
      [
        /^tasks redeliver does not take --prefix, --from\n/,
        'redeliver',
        'x',
        '--prefix',
        'a',
        '--from',
        '2h'
      ],
      [/^tasks redeliver does not take order-2\n/, 'redeliver', 'order-1', 'order-2'],
      [/^tasks push does not take --dry-run\n/, 'push', 'order-1', '--dry-run'],
      [/^tasks settle does not take --force\n/, 'settle', 'order-1', 'HANDLED', '--reason', 'x', '--force'],
      [/^tasks list does not take order-1\n/, 'list', 'order-1'],
      [/^Missing TASKNO\n/, 'redeliver'],
      [/^Missing STATUS\n/, 'settle', 'order-1'],
      [/^Missing reason: /, 'settle', 'order-1', 'HANDLED'],
      [/^Missing OPERATION\n/, 'stop'],
      [/^Missing OPERATION\n/, 'follow']
    ]
    for (const [said, ...args] of refused)
      t.match(await tasks(nobody, ...args), { code: 1, out: '', err: said }, args.join(' '))
    t.match(await tasks(nobody, 'redeliver', '--all', '--dry-run', '--prefix', 'a', '--json'), {
      err: /No service answers/
    })
  }
)

t.test(
  'something else than Ackbox that answers is named in a line, and a proxy without Ackbox behind it is not',
  async t => {
    let status = 200
    const server = createServer((_request, response) => response.writeHead(status).end('<h1>It works!</h1>'))
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    t.teardown(() => server.close())
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    t.match(await tasks(url, 'list'), {
      code: 1,
      out: '',
      err: `The server at ${url} is not Ackbox (HTTP 200, no JSON): set --url\n`
    })
    status = 502
    t.match(await tasks(url, 'list'), { code: 1, out: '', err: `${url} answered HTTP 502: try again\n` })
  }
)

t.test('what the API refuses is told by the option that it is about', async t => {
  const asked: string[] = []
  let problem: object = {}
  const server = createServer((request, response) => {
    asked.push(request.url ?? '')
    response.writeHead(422, { 'content-type': 'application/problem+json' }).end(JSON.stringify(problem))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/behind/a/proxy/`

  const about = { title: 'The request does not match', code: 'INVALID' }
  problem = { ...about, detail: 'must be from 1 to 200', pointer: '?/limit' }
  t.match(await tasks(url, 'list', '--limit', '0'), {
    code: 1,
    out: '',
    err: 'INVALID: The request does not match: must be from 1 to 200 (--limit)\n'
  })
  t.same(asked, ['/behind/a/proxy/tasks?limit=0'], 'below the path of ACKBOX_URL')
  const errors = [
    { detail: 'must be one', pointer: '/filter/messageCode' },
    { detail: 'must be another', pointer: '/filter/colour' }
  ]
  problem = { ...about, ...errors[0], errors }
  t.match(await tasks(url, 'redeliver', '--all', '--code', '?'), {
    code: 1,
    err: 'INVALID: The request does not match\n  --code: must be one\n  /filter/colour: must be another\n'
  })
  t.match(await tasks(url, 'redeliver', '--all', '--json'), {
    code: 1,
    out: `${JSON.stringify(problem)}\n`,
    err: ''
  })
  problem = { ...about, detail: 'Invalid option', pointer: '/status' }
  t.match(await tasks(url, 'settle', 'a', 'gone', '--reason', 'x'), { err: /Invalid option \(STATUS\)\n$/ })
  problem = {
    title: 'A valid API key is required',
    code: 'UNAUTHORIZED',
    detail: 'send Authorization: Bearer ack_…'
  }
  t.match(await tasks(url, 'list'), {
    err: 'UNAUTHORIZED: A valid API key is required: set --key KEY or ACKBOX_KEY\n'
  })
})

t.test('the key comes from a file too, as for relay and import', async t => {
  const server = createServer((request, response) => {
    const isRight = request.headers.authorization === 'Bearer right'
    response.writeHead(isRight ? 200 : 401, { 'content-type': 'application/json' })
    response.end(JSON.stringify(isRight ? { tasks: [] } : { code: 'UNAUTHORIZED' }))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const file = path.join(t.testdir({ key: 'right\n' }), 'key')
  t.match(await tasks(url, 'list', '--key-file', file), { code: 0, out: 'No task matches.\n' })
  t.match(await tasks(url, 'list', '--key-file', '/nope'), {
    code: 1,
    err: /^--key-file cannot be read: ENOENT/
  })
})

t.test('a list that has not read all says where to go on, and calls nothing none before', async t => {
  const asked: string[] = []
  let page: object = {}
  const server = createServer((request, response) => {
    asked.push(request.url ?? '')
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(page))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const list = (...args: string[]) => tasks(url, 'list', '--text', 'rare', ...args)
  page = { tasks: [], nextCursor: 'c-1', partial: true }
  t.match(await list(), {
    code: 0,
    out: 'Not all tasks were read: go on with --cursor c-1, or narrow --from and --to.\n'
  })
  page = { tasks: [], nextCursor: 'c-2' }
  t.match(await list('--cursor', 'c-1'), { out: /^More tasks match: go on with --cursor c-2, / })
  page = { tasks: [] }
  t.match(await list('--cursor', 'c-2'), { out: 'No task matches.\n' })
  t.same(asked, [
    '/tasks?lastReason=rare',
    '/tasks?lastReason=rare&cursor=c-1',
    '/tasks?lastReason=rare&cursor=c-2'
  ])
})

t.test('a time before 1970 is refused by its option', async t => {
  t.match(await tasks(nobody, 'list', '--from', '999999999d'), {
    code: 1,
    out: '',
    err: '--from 999999999d is before 1970\n'
  })
})

t.test(
  'a bulk redelivery is followed over a restart of the service, and a stopped one is no success',
  async t => {
    const operation = { id: 'op-1', matched: 2, redelivered: 2, skipped: 0 }
    let answers: [status: number, body: object | string][] = []
    const server = createServer((request, response) => {
      const [status, body] =
        request.method === 'POST' ? [202, { ...operation, state: 'RUNNING' }] : (answers.shift() ?? [200, ''])
      // A process that ends does not answer.
      if (status === 0) return void request.socket.destroy()
      response.writeHead(status, { 'content-type': 'application/json' })
      response.end(typeof body === 'string' ? body : JSON.stringify(body))
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    t.teardown(() => server.close())
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    answers = [
      [0, ''],
      [502, '<h1>Bad gateway</h1>'],
      [404, '<h1>No such route</h1>'],
      [503, { code: 'UNAVAILABLE', title: 'The service cannot take this now' }],
      [200, { ...operation, state: 'DONE' }]
    ]
    t.match(await tasks(url, 'redeliver', '--all', '--code', 'order.paid'), { code: 0, out: /DONE: .*\n$/ })
    answers = [[200, { ...operation, matched: 5, skipped: 1, state: 'DONE' }]]
    t.match(await tasks(url, 'redeliver', '--all', '--code', 'order.paid'), {
      code: 0,
      out: /DONE: 2 redelivered, 1 skipped; now none\n2 were no longer FAILED when their turn came\n$/
    })
    answers = [[200, { ...operation, state: 'STOPPED' }]]
    t.match(await tasks(url, 'redeliver', '--all', '--code', 'order.paid'), { code: 1, out: /STOPPED/ })
    const refused: [number, object] = [401, { code: 'UNAUTHORIZED', title: 'A valid API key is required' }]
    answers = [refused]
    t.match(await tasks(url, 'redeliver', '--all', '--code', 'order.paid'), {
      code: 1,
      err: /Operation op-1 goes on all the same: .* follow op-1 shows its progress[^]*UNAUTHORIZED/
    })

    const running: [number, object] = [200, { ...operation, state: 'RUNNING' }]
    answers = [running, running, [200, { ...operation, state: 'DONE' }]]
    const line = '\r2 of 2 redelivered '
    t.match(await tasksOnTerminal(url, 'redeliver', '--all'), {
      code: 0,
      err: `stops it\n${line.repeat(3)}\n`,
      out: /^Operation op-1 is DONE/
    })
    answers = [running, refused]
    t.match(await tasksOnTerminal(url, 'redeliver', '--all'), {
      code: 1,
      err: `stops it\n${line}\nOperation op-1 goes on all the same`
    })
    answers = [running, running, [200, { ...operation, state: 'STOPPED' }]]
    t.match(await tasks(url, 'follow', 'op-1'), { code: 1, err: '', out: /^Operation op-1 is STOPPED/ })
  }
)

t.test('an act beyond the limit of its key is done when the service says', async t => {
  let calls = 0
  const server = createServer((request, response) => {
    request.resume()
    response.setHeader('content-type', 'application/json')
    if (++calls < 3) response.writeHead(429, { 'retry-after': '0' }).end('{"code":"TOO_MANY_REQUESTS"}')
    else
      response.end(
        JSON.stringify({ taskNo: 'a', messageCode: 'order.paid', status: 'SENDING', deliveries: [] })
      )
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  t.match(await tasks(url, 'push', 'a', '--json'), { code: 0, out: /"taskNo":"a"/ })
  t.equal(calls, 3)
})
