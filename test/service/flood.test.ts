// Clients that only consume resources: their cost to a whole process is bounded, and producers are served meanwhile.
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { createKey } from '../../src/db/api-keys.ts'
import { start, type Process } from '../support/service.ts'
import { stage } from '../support/stage.ts'

t.setTimeout(600_000)

const megabyte = 1024 * 1024

/** Resident memory of a process, MB. */
function residentMb(pid: number): number {
  const [, kb = '0'] = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? []
  return Number(kb) / 1024
}

async function opened(t: Test, { url }: Process, count: number): Promise<Socket[]> {
  const port = Number(new URL(url).port)
  const sockets = await Promise.all(
    Array.from({ length: count }, async () => {
      const socket = connect(port, '127.0.0.1')
      socket.on('error', () => {})
      await once(socket, 'connect')
      return socket
    })
  )
  t.teardown(() => sockets.forEach(socket => socket.destroy()))
  return sockets
}

/** Writes until the other side ends the connection, or all is written. */
async function pour(socket: Socket, head: string, chunk: Buffer, times: number): Promise<void> {
  socket.resume()
  socket.write(head)
  for (let n = 0; n < times && !socket.destroyed && !socket.closed; n++) {
    if (socket.write(chunk)) continue
    await Promise.race([once(socket, 'drain'), once(socket, 'close')]).catch(() => {})
  }
}

t.test('floods cost a bounded memory, and a producer with a key is served beside them', async t => {
  const on = await stage(t)
  if (!on) return
  const service = await start(t, { ...on.env, AUTH: 'on' })
  const { key } = await createKey(on.sql, {
    name: 'p',
    scopes: ['tasks:write'],
    messageCodes: null,
    who: { name: 'test' }
  })
  let posted = 0
  const served = async (): Promise<void> => {
    const body = JSON.stringify({
      taskNo: `beside-${posted++}`,
      messageCode: 'test.plain',
      messageBody: { n: 1 }
    })
    const ask = async () => {
      const answer = await fetch(`${service.url}/tasks`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body
      })
      return { status: answer.status, said: await answer.text() }
    }
    let answer = await ask()
    // It had no processor. No other refusal is repeated.
    while (answer.said.includes('the process is overloaded')) answer = await ask()
    t.match(answer, { status: 201 }, 'a producer is served')
  }
  for (let n = 0; n < 20; n++) await served()
  const before = residentMb(service.pid)
  const bounded = (story: string): void => {
    const grown = residentMb(service.pid) - before
    t.ok(grown < 300, `${story}: ${Math.round(grown)} MB more`)
  }
  const post = (path: string, length: number): string =>
    `POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n`

  await t.test('strangers who pour eight megabytes each into a route that needs a key', async t => {
    const sockets = await opened(t, service, 100)
    const chunk = Buffer.alloc(256 * 1024, 'x')
    const poured = sockets.map(socket => pour(socket, post('/tasks/batch', 8 * megabyte), chunk, 31))
    await served()
    await Promise.all(poured)
    bounded('800 MB poured')
  })

  await t.test('strangers who leave receipts half-sent, as long as those may be', async t => {
    const sockets = await opened(t, service, 500)
    const body = Buffer.alloc(79 * 1024, ' ')
    await Promise.all(sockets.map(socket => pour(socket, post('/callback', 80 * 1024), body, 1)))
    await served()
    bounded('500 receipts of 79 kB')
  })

  await t.test('strangers who ask for the longest answer again and again, and never read', async t => {
    const sockets = await opened(t, service, 20)
    const asking = Buffer.from('GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(5_000))
    for (const socket of sockets) {
      socket.pause()
      socket.write(asking)
    }
    for (let n = 0; n < 20; n++) await served()
    bounded('100,000 answers that nobody reads')
  })

  await t.test('strangers with a target, a header or a chunk extension without an end', async t => {
    const endless = [
      'GET /',
      'GET / HTTP/1.1\r\nHost: a\r\nx-long: ',
      'GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /'
    ]
    endless.push(
      `POST /callback HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1;`
    )
    const sockets = await opened(t, service, 40)
    const chunk = Buffer.alloc(64 * 1024, 'x')
    await Promise.all(sockets.map((socket, n) => pour(socket, endless[n % endless.length] ?? '', chunk, 400)))
    await Promise.all(sockets.map(async socket => socket.closed || (await once(socket, 'close'))))
    t.pass('each was cut off')
    await served()
    bounded('1 GB without an end')
  })

  t.equal((await fetch(`${service.url}/healthz`)).status, 200)
  t.notMatch(service.output(), /api\.bug|"level":60/)
  const [row] = await on.sql`select count(*)::int as n from task`
  t.equal(row?.['n'], posted)
})
