// A target that is not allowed yet: the attempt and the alarm name the setting to add.
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import t, { type Test } from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import { testDb } from '../support/postgres.ts'
import { call, folder, postUntilTaken, secret, settled, start } from '../support/service.ts'
import { scriptedServer, type ScriptedServer } from '../transport/scripted-server.ts'

t.setTimeout(600_000)

/** A handler of one downstream whose only target is `place`; it is tried once. */
const handler = (code: string, place: string): string => `
import { defineHandler, z } from 'ackbox/handler'
export default defineHandler({
  messageCode: '${code}',
  body: z.unknown(),
  downstreams: {
    '${code}': {
      transport: 'http',
      request: ({ raw }) => ({ url: 'http://${place}/hook', body: raw }),
      retry: { times: 1, backoff: ['100ms'] },
      limit: { timeout: '30s' }
    }
  }
})
`

async function service(t: Test, places: Record<string, string>, env: Record<string, string>) {
  const { url } = await testDb(t)
  const at = new URL(url).host
  const handlers = folder(t)
  for (const [code, place] of Object.entries(places))
    writeFileSync(path.join(handlers, `${code}.mjs`), handler(code, place.replace('POSTGRES', at)))
  return start(t, {
    DATABASE_URL: url,
    SECRET: secret,
    AUTH: 'off',
    DATA_DIR: folder(t),
    HANDLERS_DIR: handlers,
    ...Object.fromEntries(Object.entries(env).map(([name, value]) => [name, value.replace('POSTGRES', at)]))
  })
}

/** The reason of the only attempt. */
async function reasonOf(url: string, messageCode: string): Promise<string> {
  await postUntilTaken(() => url, { taskNo: messageCode, messageCode, messageBody: { n: 1 } })
  const { body } = await settled(url, messageCode)
  const { deliveries } = body as { deliveries: { attempts: { reason: string }[] }[] }
  return deliveries[0]?.attempts[0]?.reason ?? ''
}

const alarmsOf = async (url: string): Promise<string> => JSON.stringify((await call(`${url}/alarms`)).body)

t.test('a target that is not allowed: attempt and alarm name the setting, and the setting works', async t => {
  const trap: ScriptedServer = await scriptedServer(t, socket =>
    socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n'))
  )
  const places = { literal: `127.0.0.1:${trap.port}`, named: `localhost:${trap.port}`, private: '10.2.3.4' }
  const first = await service(t, places, {})
  const reasons = {
    literal: await reasonOf(first.url, 'literal'),
    named: await reasonOf(first.url, 'named'),
    private: await reasonOf(first.url, 'private')
  }
  const setting = (reason: string): string => /to allow it set EGRESS_ALLOW=(\S+)$/.exec(reason)?.[1] ?? ''
  t.equal(setting(reasons.literal), `127.0.0.1:${trap.port}`)
  t.equal(setting(reasons.named), `localhost:${trap.port}`)
  t.equal(setting(reasons.private), '10.2.0.0/16')
  const alarms = await alarmsOf(first.url)
  t.match(alarms, /BLOCKED_TARGET/)
  t.match(first.output(), new RegExp(`EGRESS_ALLOW=127\\.0\\.0\\.1:${trap.port}`), 'the alarm says it too')
  t.equal(trap.taken, 0)

  const second = await service(t, places, {
    EGRESS_ALLOW: `${setting(reasons.literal)},${setting(reasons.named)}`
  })
  t.equal(await reasonOf(second.url, 'literal'), '')
  t.equal(await reasonOf(second.url, 'named'), '')
  t.equal(trap.taken, 2)
})

t.test('our own port and our PostgreSQL are no targets, whatever is allowed', async t => {
  const port = await freePort()
  const own = await service(
    t,
    { self: `127.0.0.1:${port}`, localhost: `localhost:${port}`, postgres: 'POSTGRES' },
    { PORT: String(port), EGRESS_ALLOW: `127.0.0.1:${port},localhost:${port},POSTGRES` }
  )
  t.match(await reasonOf(own.url, 'self'), /this service's own endpoint/)
  t.match(await reasonOf(own.url, 'localhost'), /this service's own endpoint/)
  t.match(await reasonOf(own.url, 'postgres'), /this service's own endpoint|the port \d+/)
})
