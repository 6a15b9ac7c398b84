// Foreign pages in the browser of a user who runs Ackbox without keys.
// Takes long: npm run test:long.
import { once } from 'node:events'
import { createServer, request as forward, type Server } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import type { Page } from 'playwright-core'
import { browser } from '../support/chromium.ts'
import { dataFolder } from '../support/cluster.ts'
import { call, start, type Process } from '../support/service.ts'
import { freePort } from '../../src/embedded/port.ts'
import * as certs from '../transport/certs.ts'

t.setTimeout(2_400_000)

/** In the browser both names resolve to this machine: a hostile name that was rebound, and the name of a proxy before us. */
const flags = [
  '--host-resolver-rules=MAP evil.example 127.0.0.1, MAP ackbox.example 127.0.0.1',
  '--ignore-certificate-errors'
]

async function listen(t: Test, server: Server, port = 0): Promise<number> {
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return (server.address() as AddressInfo).port
}

/** A page that sends no request by itself, served under every name of this machine. */
async function foreignServer(t: Test): Promise<number> {
  return await listen(
    t,
    createServer((_request, response) => {
      response.setHeader('content-type', 'text/html').end('<!doctype html><title>A page</title><body>')
    })
  )
}

const task = (taskNo: string): object => ({
  taskNo,
  messageCode: 'order.paid',
  messageBody: { orderId: '1001', cents: 4200 }
})

/** Tries every request that a page can send on its own initiative. Returns the answers that it could read. */
const attacker = (target: string): string => `(async () => {
  const read = []
  const ask = async (way, path, init) => {
    try {
      const answer = await fetch('${target}' + path, init)
      const text = await answer.text()
      if (answer.ok && text !== '') read.push(way + ' ' + path + ': ' + text.slice(0, 80))
    } catch {} // kept from it by the browser
  }
  const pause = '/downstreams/warehouse/pause'
  const post = { method: 'POST', body: ${JSON.stringify(JSON.stringify(task('of-a-page')))} }
  await ask('blindly', pause, { method: 'POST', mode: 'no-cors' })
  await ask('without a referrer', pause, { method: 'POST', mode: 'no-cors', referrerPolicy: 'no-referrer' })
  await ask('openly', pause, { method: 'POST' })
  await ask('openly', '/tasks', { ...post, headers: { 'content-type': 'application/json' } })
  await ask('blindly', '/tasks', { ...post, mode: 'no-cors' })
  await ask('openly', '/tasks/theirs', { method: 'DELETE' })
  navigator.sendBeacon('${target}' + pause)
  for (const path of ['/tasks', '/downstreams', '/openapi.json', '/docs', '/metrics', '/healthz']) {
    await ask('openly', path)
    await ask('blindly', path, { mode: 'no-cors' })
  }
  const socket = new WebSocket('${target.replace('http', 'ws')}/downstreams')
  await new Promise(resolve => {
    socket.onopen = () => resolve(read.push('a WebSocket was opened'))
    socket.onerror = resolve
  })
  const add = (tag, members) => document.body.appendChild(Object.assign(document.createElement(tag), members))
  for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data'])
    for (const path of [pause, '/tasks']) {
      const frame = add('iframe', { name: type + path })
      const answered = new Promise(resolve => frame.addEventListener('load', resolve, { once: true }))
      const action = '${target}' + path
      add('form', { method: 'POST', action, enctype: type, target: frame.name }).submit()
      await answered
    }
  const done = new Promise(resolve => addEventListener('message', resolve, { once: true }))
  const srcdoc = \`<script>
    fetch('${target}\${pause}', { method: 'POST', mode: 'no-cors' })
      .catch(() => {})
      .finally(() => parent.postMessage('done', '*'))
  </script>\`
  add('iframe', { sandbox: 'allow-scripts', srcdoc })
  await done
  return read
})()`

async function attack(page: Page, target: string): Promise<string[]> {
  return await page.evaluate<string[]>(attacker(target))
}

async function untouched(t: Test, { url }: Process, who: string): Promise<void> {
  const { body } = await call(`${url}/downstreams`)
  const all = body?.['downstreams'] as { name: string; pausedAt?: string }[]
  t.ok(all.length > 0)
  t.same(
    all.filter(one => one.pausedAt),
    [],
    `nothing is paused after ${who}`
  )
  t.equal((await call(`${url}/tasks/of-a-page`)).status, 404, `nothing is posted after ${who}`)
  t.match(
    await call(`${url}/tasks/theirs`),
    { body: { status: 'SENDING' } },
    `nothing is stopped after ${who}`
  )
}

t.test(
  'a page of another origin, or of a name turned to this machine, does nothing and reads nothing',
  async t => {
    const watched = await browser(t, flags)
    if (!watched) return
    const { page } = watched
    const service = await start(t, { DATA_DIR: await dataFolder(t) })
    t.equal((await call(`${service.url}/tasks`, { ...task('theirs'), delay: 600_000 })).status, 201)
    const other = await foreignServer(t)
    const { port } = new URL(service.url)
    const attacks: [from: string, target: string][] = [
      [`http://127.0.0.1:${other}/`, service.url],
      [`http://localhost:${other}/`, service.url],
      [`http://localhost:${other}/`, `http://localhost:${port}`],
      [`http://evil.example:${other}/`, service.url],
      // A rebound name: its page came from another server before, so for the browser it has the same origin as ours.
      [`http://evil.example:${port}/`, `http://evil.example:${port}`],
      [`http://evil.example:${port}/docs`, `http://evil.example:${port}`],
      [`http://localhost:${port}/healthz`, service.url]
    ]
    for (const [from, target] of attacks) {
      const who = `${from} at ${target}`
      const shown = await page.goto(from)
      if (new URL(from).host === `evil.example:${port}`) t.equal(shown?.status(), 421, who)
      t.same(await attack(page, target), [], `what ${who} could read`)
      await untouched(t, service, who)
    }
  }
)

t.test(
  'the page of a TLS proxy before it still posts, whether the proxy passes the Host on or not',
  async t => {
    const watched = await browser(t, flags)
    if (!watched) return
    const { page } = watched
    const port = await freePort()
    const tls = { key: certs.key, cert: certs.good }
    let rewritten = false
    const proxy = createTlsServer(tls, (near, answer) => {
      const host = rewritten ? `127.0.0.1:${port}` : (near.headers.host ?? '')
      const far = forward(
        { host: '127.0.0.1', port, method: near.method, path: near.url, headers: { ...near.headers, host } },
        reply => {
          answer.writeHead(reply.statusCode ?? 502, reply.headers)
          reply.pipe(answer)
        }
      )
      far.on('error', () => answer.destroy())
      near.pipe(far)
    })
    const publicUrl = `https://ackbox.example:${await listen(t, proxy)}`
    await start(t, { DATA_DIR: await dataFolder(t), PORT: String(port), PUBLIC_URL: publicUrl })

    for (rewritten of [false, true]) {
      await page.goto(`${publicUrl}/docs`)
      const block = page.locator('#operations-ops-pauseDownstream')
      await block.locator('.opblock-summary-control').click()
      await block.locator('.execute').click()
      const answer = block.locator('.live-responses-table .response')
      await answer.waitFor()
      t.match(await answer.locator('.response-col_status').innerText(), /^200/)
      t.match(await answer.locator('.response-col_description').innerText(), /"paused": true/)
      t.equal((await call(`http://127.0.0.1:${port}/downstreams/warehouse/resume`, {})).status, 200)
    }

    const other = await foreignServer(t)
    await page.goto(`http://localhost:${other}/`)
    const blindly = `fetch('${publicUrl}/downstreams/warehouse/pause', { method: 'POST', mode: 'no-cors' })`
    for (rewritten of [false, true])
      t.equal(await page.evaluate(`${blindly}.then(({ type }) => type)`), 'opaque')
    const { body } = await call(`http://127.0.0.1:${port}/downstreams`)
    t.notMatch(JSON.stringify(body), /pausedAt/, 'and others do nothing through it')
  }
)
