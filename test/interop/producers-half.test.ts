// Half messages of the producers in Java and Go, with a real Ackbox and a real database. Each can be cut off at a bad moment.
import { execFile } from 'node:child_process'
import { createServer, type ServerResponse } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import path from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import mysql from 'mysql2/promise'
import t, { type Test } from 'tap'
import { fetch, type RequestInit } from 'undici'
import { signingSecret } from '../../src/domain/tokens.ts'
import { freePort } from '../../src/embedded/port.ts'
import { mariadbShop, postgresShop, type Shop } from '../producer/databases.ts'
import { program, without } from '../support/program.ts'
import { cutter, type Cutter } from '../support/proxy.ts'
import { call, folder, secret, settled, start } from '../support/service.ts'
import { stage } from '../support/stage.ts'
import { buildSdk, goUrl, jdbcUrl, mainOf } from './sdk.ts'

t.setTimeout(2_400_000)

const run = promisify(execFile)
interface Command {
  command: string
  args: string[]
  /** The environment with the URL of the program's database. */
  env(url: string): Record<string, string>
}
const languages: Record<string, { needs: string[]; prepare(t: Test): Promise<(shop: Shop) => Command> }> = {
  java: {
    needs: ['java', 'mvn'],
    async prepare() {
      await buildSdk()
      return ({ db }) => ({
        command: 'java',
        args: mainOf('producers', 'HalfShop'),
        env: url => ({ JDBC_URL: jdbcUrl(url, db.dialect) })
      })
    }
  },
  go: {
    needs: ['go'],
    async prepare(t) {
      const binary = path.join(folder(t), 'producer')
      await run('go', ['build', '-o', binary, '.'], { cwd: 'examples/producers/go' })
      return ({ db }) => ({
        command: binary,
        args: ['half', db.dialect],
        env: url => ({ DSN: goUrl(url, db.dialect) })
      })
    }
  }
}

for (const [name, { needs, prepare }] of Object.entries(languages))
  t.test(name, { skip: without(...needs) }, async t => {
    const commandFor = await prepare(t)
    const mariadb = await mariadbShop(t)
    for (const shop of [await postgresShop(t), ...(mariadb ? [mariadb] : [])])
      await t.test(shop.db.dialect, t => stories(t, shop, commandFor(shop)))
  })

async function stories(t: Test, shop: Shop, { command, args, env }: Command): Promise<void> {
  const at = await stage(t)
  if (!at) return
  const { url, pay, forge, database, afterPrepare, cutCommit, answerCommits } = await scene(t, shop, at.env, {
    command,
    args,
    env
  })
  const ended = async (taskNo: string) => {
    const { body } = await settled(url, taskNo)
    return body?.['status']
  }
  let balance = 500
  const paid = async (times: number, why: string) =>
    t.equal(await shop.balance(), (balance -= 7 * times), why)

  await t.test('work that commits commits its message', async t => {
    t.match(await pay('good'), { status: 200, text: 'paid' })
    t.equal(await ended('good'), 'HANDLED')
    await paid(1, 'the account paid')
    t.match(await pay('good'), { status: 409 }, 'and is done once')
    await paid(0, 'not twice')
  })

  await t.test('work that fails leaves nothing, and its message is rolled back', async t => {
    t.match(await pay('failed?card=refused'), { status: 500, text: /card was refused/ })
    t.equal(await ended('failed'), 'CANCELLED')
    await paid(0, 'the account did not pay')
  })

  await t.test('work that comes after its check was answered ROLLED_BACK cannot commit', async t => {
    afterPrepare(taskNo => call(`${url}/tasks/${taskNo}/check`, {}))
    t.match(await pay('late'), { status: 409, text: /decided/ })
    afterPrepare(undefined)
    t.equal(await ended('late'), 'CANCELLED')
    await paid(0, 'the account did not pay')
  })

  await t.test('asked while the work goes on: UNKNOWN, and afterwards COMMITTED', async t => {
    const release = await locked(shop)
    const paying = pay('slow')
    await database.said(/account set balance/)
    const { body } = await call(`${url}/tasks/slow/check`, {})
    t.match(body, { status: 'PREPARED', prepared: { lastAnswer: 'UNKNOWN' } })
    await release()
    t.match(await paying, { status: 200 })
    t.equal(await ended('slow'), 'HANDLED')
    await paid(1, 'the account paid')
  })

  await t.test('the answer to the commit is lost: the check is asked at once, and says it', async t => {
    database.cutAt('answer')
    t.match(await pay('answer-lost'), { status: 200, text: 'paid' })
    t.equal(await ended('answer-lost'), 'HANDLED')
    await paid(1, 'the account paid')
  })

  await t.test('the commit itself is lost: neither the work nor the message is there', async t => {
    database.cutAt('request')
    t.match(await pay('commit-lost'), { status: 500 })
    t.equal(await ended('commit-lost'), 'CANCELLED')
    await paid(0, 'the account did not pay')
  })

  await t.test(
    'the caller goes while the message is committed: it is committed again, and not by a check',
    async t => {
      const caller = new AbortController()
      cutCommit(() => caller.abort())
      await t.rejects(pay('gone', caller.signal))
      const { body } = await settled(url, 'gone')
      t.match(body, { status: 'HANDLED' })
      t.notMatch(body, { prepared: { lastAnswer: 'COMMITTED' } })
      await paid(1, 'the account paid')
    }
  )

  await t.test('a page in place of the answer to the commit says nothing of the work', async t => {
    for (const status of [200, 401, 404]) {
      answerCommits(response => void response.writeHead(status).end('<html>Sign in</html>'))
      t.match(await pay(`page-${status}`), { status: 200, text: 'paid' })
      answerCommits(undefined)
      await call(`${url}/tasks/page-${status}/check`, {})
      t.equal(await ended(`page-${status}`), 'HANDLED', 'the check finds the commit')
    }
    await paid(3, 'the account paid')
  })

  await t.test(
    'a message that was rolled back while the work committed is an error that says so',
    async t => {
      const problem = JSON.stringify({ status: 409, code: 'TASK_ROLLED_BACK', title: 'It was rolled back' })
      answerCommits(
        response => void response.writeHead(409, { 'content-type': 'application/problem+json' }).end(problem)
      )
      t.match(await pay('by-hand'), {
        status: 500,
        text: /has committed and must not run again.*TASK_ROLLED_BACK/
      })
      answerCommits(undefined)
      await paid(1, 'the account paid')
    }
  )

  await t.test('a check that Ackbox has not signed is not answered', async t => {
    t.equal(await forge({ taskNo: 'forged', preparedAt: new Date().toISOString() }), 401)
    t.same(await shop.select("select 1 from ackbox_barrier where task_no = 'forged'"), [])
  })
}

async function scene(
  t: Test,
  shop: Shop,
  env: Record<string, string>,
  { command, args, ...shopOf }: Command
) {
  const port = await freePort()
  const { url } = await start(t, {
    ...env,
    HANDLERS_DIR: path.resolve(import.meta.dirname, '../producer/handlers'),
    TEST_SHOP: `http://127.0.0.1:${port}`,
    EGRESS_ALLOW: `${env['EGRESS_ALLOW']},127.0.0.1:${port}`
  })
  let commitCut: (() => void) | undefined
  let answerCommit: ((response: ServerResponse) => void) | undefined
  let afterPrepare: ((taskNo: string) => Promise<unknown>) | undefined
  // A proxy between the program and Ackbox: `afterPrepare` runs before the program knows that its message is prepared.
  const door = createServer((request, response) => {
    const { method = '', url: target = '' } = request
    void (async () => {
      const body = await text(request)
      if (commitCut && target.endsWith('/commit')) {
        commitCut()
        commitCut = undefined
        return response.destroy()
      }
      if (answerCommit && target.endsWith('/commit')) return answerCommit(response)
      const headers = { 'content-type': 'application/json' }
      const answer = await fetch(url + target, { method, ...(body ? { body, headers } : {}) })
      const answered = await answer.text()
      if (target === '/tasks') await afterPrepare?.((JSON.parse(body) as { taskNo: string }).taskNo)
      response.writeHead(answer.status, headers).end(answered)
    })()
  }).listen(0, '127.0.0.1')
  await once(door, 'listening')
  t.teardown(() => {
    door.close()
    door.closeAllConnections()
  })

  const database: Cutter = await cutter(t, new URL(shop.url))
  const own = new URL(shop.url)
  own.port = String(database.port)
  const running = program(t, command, args, {
    env: {
      ...shopOf.env(own.href),
      ACKBOX_URL: `http://127.0.0.1:${(door.address() as AddressInfo).port}`,
      CHECK_SECRET: signingSecret(secret, 'check:order.paid'),
      PORT: String(port)
    }
  })
  await running.said(/^listening/)
  const post = (to: string, more: RequestInit = {}) =>
    fetch(`http://127.0.0.1:${port}${to}`, { method: 'POST', ...more })
  /** The headers of a check of Ackbox, with a wrong signature. */
  const forged = () => ({
    'webhook-id': 'check_forged_1',
    'webhook-timestamp': String(Math.floor(Date.now() / 1_000)),
    'webhook-signature': `v1,${Buffer.alloc(32).toString('base64')}`
  })
  return {
    url,
    database,
    afterPrepare: (then: typeof afterPrepare) => void (afterPrepare = then),
    /** Cuts the next commit; `then` is called first. */
    cutCommit: (then: () => void) => void (commitCut = then),
    /** Answers all commits in place of Ackbox, until it is called with undefined. */
    answerCommits: (then: typeof answerCommit) => void (answerCommit = then),
    async pay(what: string, signal?: AbortSignal) {
      const answer = await post(`/pay/${what}`, signal ? { signal } : {})
      return { status: answer.status, text: await answer.text() }
    },
    forge: async (body: object) =>
      (await post('/check', { headers: forged(), body: JSON.stringify(body) })).status
  }
}

/** Locks the account, so that payments wait. Returns the function that releases the lock. */
async function locked({ url, db }: Shop): Promise<() => Promise<void>> {
  const hold = 'select * from account for update'
  if (db.dialect === 'postgres') {
    const client = new pg.Client({ connectionString: url })
    await client.connect()
    await client.query('begin')
    await client.query(hold)
    return () => client.end()
  }
  const connection = await mysql.createConnection({ uri: url })
  await connection.beginTransaction()
  await connection.query(hold)
  return () => connection.end()
}
