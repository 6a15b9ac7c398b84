import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import t from 'tap'

const program = path.resolve(import.meta.dirname, '../../src/cli/ackbox.js')

function tasks(url: string, ...args: string[]): Promise<{ code: number | string; out: string; err: string }> {
  return new Promise(resolve => {
    const env = { PATH: process.env['PATH'], ACKBOX_URL: url }
    execFile(process.execPath, [program, 'tasks', ...args], { env, cwd: '/' }, (error, out, err) =>
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
      [/^Missing OPERATION\n/, 'stop']
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
