// What the API says that an attempt has sent, against what a real HTTP server has received.
import { hash } from 'node:crypto'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { requestNow, withRequests, type RequestAgainDeps } from '../../src/delivery/request-again.ts'
import { deliveryHeaders } from '../../src/delivery/headers.ts'
import type { LoadedDownstream } from '../../src/handler/loaded.ts'
import { tokens } from '../../src/domain/tokens.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { httpTransport } from '../../src/transport/http/http.ts'
import { setup, type Story } from '../support/setup.ts'
import { answer, rawServer, type Received } from '../transport/raw-server.ts'

const versionOne = 0x0badcafe
const secret = 'a-token-of-the-partner'

/** Two versions of one handler, which send different things. */
const versions: ((url: string) => Partial<LoadedDownstream>)[] = [
  url => ({
    handlerVersion: versionOne,
    request: ({ raw, task, attempt }) => ({
      url: `${url}/orders/${task.taskNo}?n=${attempt}&token=${secret}`,
      headers: { 'x-shop': 'a', authorization: `Bearer ${secret}` },
      body: raw
    })
  }),
  url => ({
    handlerVersion: versionOne + 1,
    request: ({ raw, task }) => ({
      url: `${url}/${task.taskNo}`,
      method: 'PUT',
      headers: { 'content-type': 'application/octet-stream' },
      body: Buffer.from(`é${raw}`)
    })
  })
]

interface Sent {
  story: Story
  again: RequestAgainDeps
  received: readonly Received[]
  /** The statuses of the next answers; 200 without one. */
  next: number[]
  use(version: number): void
}

async function sending(t: Test): Promise<Sent> {
  const next: number[] = []
  const server = await rawServer(t, socket => void socket.write(answer(next.shift() ?? 200, 'seen')))
  const transport = httpTransport({ guard: guard({ allow: undefined, embedded: true, deny: [] }) })
  t.teardown(() => transport.close())
  const made = versions.map(version => version(server.url))
  const story = await setup(t, { transport, downstream: made[0]! })
  const handler = story.handlers.get('order.paid')!
  const use = (version: number): void => {
    const [warehouse] = handler.downstreams
    story.handlers.set('order.paid', { ...handler, downstreams: [{ ...warehouse!, ...made[version] }] })
  }
  const headers = deliveryHeaders({
    handlers: [handler],
    secret: 'a test secret',
    tokens: tokens({ current: 'a test secret' }),
    publicUrl: 'http://ackbox.test',
    forgetMs: 86_400_000
  })
  const again: RequestAgainDeps = {
    reads: story.reads,
    handlers: story.handlers,
    transports: { http: transport },
    headers,
    settings: { PARTNER_TOKEN: secret }
  }
  return { story, again, received: server.received, next, use }
}

const attemptsOf = async ({ story, again }: Sent, taskNo: string) =>
  (await withRequests(again, await story.read(taskNo))).deliveries[0]?.attempts ?? []

const shownUrl = ({ headers, path }: Received): string =>
  `http://${headers['host']}${path}`.replace(secret, '[masked]')

t.test('what the API says was sent is what the server received, over attempts and versions', async t => {
  const sent = await sending(t)
  const { story, again, received, next, use } = sent
  const seen = { stored: 0, computed: 0, changed: 0 }
  const lives = fc.record({
    body: fc.json({ maxDepth: 2 }),
    rounds: fc.array(fc.record({ version: fc.nat(1), status: fc.constantFrom(200, 200, 404, 410, 503) }), {
      minLength: 1,
      maxLength: 4
    }),
    read: fc.nat(1)
  })
  await fc.assert(
    fc.asyncProperty(lives, async ({ body, rounds, read }) => {
      const from = received.length
      let taskNo = ''
      for (const [n, { version, status }] of rounds.entries()) {
        use(version)
        next.splice(0, next.length, status)
        const before = received.length
        if (n === 0) taskNo = await story.post({ messageBody: body })
        else {
          const now = await requestNow(again, taskNo, 'warehouse')
          await story.later('11 s')
          await story.dispatch()
          if (received.length > before) {
            const got = received[before]!
            if ('kind' in now) throw new Error(now.kind)
            t.match(now, { bytes: got.body.length, sha256: hash('sha256', got.body), target: shownUrl(got) })
          }
        }
        await story.quiet()
        if (received.length === before) break
      }
      await story.remove(taskNo)
      use(read)
      const attempts = await attemptsOf(sent, taskNo)
      const mine = received.slice(from)
      t.equal(attempts.length, mine.length)
      for (const [n, one] of attempts.entries()) {
        const got = mine[n]!
        const { request } = one
        const isFirstSuccess = n === 0 && one.outcome === 'delivered'
        if (isFirstSuccess && rounds[0]!.version !== read) {
          seen.changed++
          t.same(request, {
            handlerVersion: rounds[0]!.version === 0 ? '0badcafe' : '0badcaff',
            unknown: 'handler_changed'
          })
          continue
        }
        seen[isFirstSuccess ? 'computed' : 'stored']++
        t.match(request, {
          handlerVersion: rounds[n]!.version === 0 ? '0badcafe' : '0badcaff',
          transport: 'http',
          method: got.method,
          target: shownUrl(got),
          bytes: got.body.length,
          sha256: hash('sha256', got.body),
          computed: isFirstSuccess ? true : undefined
        })
        const names = request?.headerNames?.map(name => name.toLowerCase()) ?? []
        const others = ['host', 'connection', 'content-length', 'user-agent', 'accept-encoding']
        t.same(
          names.toSorted(),
          Object.keys(got.headers)
            .filter(name => !others.includes(name))
            .toSorted()
        )
      }
    }),
    { numRuns: 60, seed: 4711 }
  )
  t.ok(Math.min(seen.stored, seen.computed, seen.changed) > 5, JSON.stringify(seen))
})

t.test('a request that cannot be made is a problem and sends nothing, and secrets are masked', async t => {
  const { story, again, received, next, use } = await sending(t)
  next.push(503)
  const taskNo = await story.post({ messageBody: `{"note":"${secret}"}` })
  await story.quiet()
  const now = await requestNow(again, taskNo, 'warehouse')
  t.match(now, { attempt: 2, method: 'POST', body: '{"note":"[masked]"}' })
  const headers = new Map('kind' in now ? [] : now.headers)
  t.equal(headers.get('authorization'), '[masked]')
  t.equal(headers.get('x-shop'), 'a')
  t.equal(headers.get('webhook-signature'), '[masked]')
  t.equal(headers.get('ackbox-attempt'), '2')
  t.notMatch(
    JSON.stringify([now, await story.read(taskNo)]).replaceAll(/"messageBody":"[^}]*}"/g, ''),
    secret
  )
  t.same(await requestNow(again, taskNo, 'mail'), { kind: 'not_found' })

  const handler = story.handlers.get('order.paid')!
  const [warehouse] = handler.downstreams
  const with_ = (request: LoadedDownstream['request']): void =>
    void story.handlers.set('order.paid', { ...handler, downstreams: [{ ...warehouse!, request }] })
  with_(() => {
    throw new Error(`no price in ${secret}`)
  })
  t.same(await requestNow(again, taskNo, 'warehouse'), { kind: 'no_request', error: 'no price in [masked]' })
  with_(() => ({ url: 'http://169.254.169.254/', headers: { 'x-a': 'b' } }))
  t.match(await requestNow(again, taskNo, 'warehouse'), {
    target: 'http://169.254.169.254/',
    bytes: undefined,
    error: /^blocked_target/
  })
  with_(() => ({ url: 'http://user:pass@a.test/' }))
  t.match(await requestNow(again, taskNo, 'warehouse'), { target: 'http://[masked]@a.test/' })
  with_(() => ({
    get url(): string {
      throw new Error('no')
    }
  }))
  t.same(await requestNow(again, taskNo, 'warehouse'), { kind: 'no_request', error: 'no' })
  story.handlers.delete('order.paid')
  t.same(await requestNow(again, taskNo, 'warehouse'), { kind: 'no_handler' })
  use(0)
  t.equal(received.length, 1)
})

t.test(
  'an attempt without a request, of an older version, or of a hook that fails now is shown as that',
  async t => {
    const sent = await sending(t)
    const { story, again } = sent
    const taskNo = await story.post()
    await story.quiet()
    const { attempts: [first] = [] } = await story.delivery(taskNo)
    t.same(first?.request, { handlerVersion: '0badcafe' }, 'nothing else is stored')
    const handler = story.handlers.get('order.paid')!
    const [warehouse] = handler.downstreams
    const request = (): never => {
      throw new Error('no')
    }
    story.handlers.set('order.paid', { ...handler, downstreams: [{ ...warehouse!, request }] })
    t.same((await attemptsOf(sent, taskNo))[0]?.request, {
      handlerVersion: '0badcafe',
      unknown: 'request_failed'
    })
    const failed = await story.post()
    await story.quiet()
    t.match((await attemptsOf(sent, failed))[0], { reason: 'hook: no', request: { target: undefined } })
    story.handlers.set('order.paid', { ...handler, downstreams: [] })
    t.match((await attemptsOf(sent, taskNo))[0]?.request, { unknown: 'no_handler' })
    await story.sql`update attempt set handler_version = null`
    t.equal(
      (await withRequests(again, await story.read(taskNo))).deliveries[0]?.attempts?.[0]?.request,
      undefined
    )
  }
)

t.test('method and names are stored once for a version, and names made of tasks end at a limit', async t => {
  const { story, next } = await sending(t)
  const shapes = async () => await story.sql<{ count: number }[]>`select count(*)::int from request_shape`
  for (let n = 0; n < 5; n++) {
    next.push(503)
    await story.post()
    await story.quiet()
  }
  t.same(await shapes(), [{ count: 1 }])
  const handler = story.handlers.get('order.paid')!
  const [warehouse] = handler.downstreams
  let nth = 0
  const request: LoadedDownstream['request'] = () => ({
    url: 'http://127.0.0.1:1/',
    headers: { [`x-${nth++}`]: '' }
  })
  story.handlers.set('order.paid', { ...handler, downstreams: [{ ...warehouse!, request }] })
  for (let n = 0; n < 110; n++) await story.post()
  await story.quiet()
  t.same(await shapes(), [{ count: 100 }])
})
