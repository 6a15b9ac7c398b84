// The producers of examples/producers against real databases: what they commit is in the outbox, what they roll back is not.
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { enqueueStub, mariadbShop, postgresShop, type Shop } from '../producer/databases.ts'
import { without } from './server.ts'

const java = 'examples/producers/java'
const go = 'examples/producers/go'

t.setTimeout(900_000)

async function run(cwd: string, command: string, ...args: string[]): Promise<string> {
  return (await promisify(execFile)(command, args, { cwd })).stdout
}

async function shops(t: Test): Promise<Shop[]> {
  const mariadb = await mariadbShop(t)
  return [await postgresShop(t), ...(mariadb ? [mariadb] : [])]
}

/** Tasks that are there, once the account has paid for one order and not for the other. */
async function written(t: Test, shop: Shop, table = 'ackbox_outbox'): Promise<unknown[]> {
  t.equal(await shop.balance(), 493)
  const rows = await shop.select(`select task_no, message_code, message_body from ${table}`)
  t.match(rows, [{ message_code: 'order.paid', message_body: /né à Zürich, 支付/ }])
  return rows.map(row => row['task_no'])
}

t.test('Go', { skip: without('go') }, async t => {
  const example = (...args: string[]) => run(go, 'go', 'run', '.', ...args)
  for (const shop of await shops(t)) {
    const { dialect } = shop.db
    await t.test(dialect, async t => {
      const { username, host, pathname } = new URL(shop.url)
      const dsn =
        dialect === 'postgres' ? `${shop.url}?sslmode=disable` : `${username}@tcp(${host})${pathname}`
      await example(dialect, dsn)
      t.same(await written(t, shop), [`go-${dialect}-1`])
    })
  }
  await t.test('enqueue', async t => {
    const shop = await postgresShop(t)
    await shop.select(enqueueStub)
    await example('enqueue', `${shop.url}?sslmode=disable`)
    t.same(await written(t, shop, 'enqueued'), ['go-enqueue-1'])
  })
})

t.test('Java', { skip: without('java', 'mvn') }, async t => {
  await run(java, 'mvn', '-B', '-q', 'compile', 'dependency:copy-dependencies', '-DincludeScope=runtime')
  const example = (main: string, ...args: string[]) =>
    run(java, 'java', '-cp', 'target/classes:target/dependency/*', `ackbox.example.${main}`, ...args)
  const jdbc = ({ db, url }: Shop) => {
    const { username, password, host, pathname } = new URL(url)
    const kind = db.dialect === 'postgres' ? 'postgresql' : 'mariadb'
    return `jdbc:${kind}://${host}${pathname}?user=${username}&password=${password}`
  }
  for (const shop of await shops(t)) {
    await t.test(`JDBC on ${shop.db.dialect}`, async t => {
      t.match(await example('Shop', 'outbox', jdbc(shop)), /refused: no transaction/)
      t.same(await written(t, shop), ['java-1'])
    })
  }
  await t.test('JDBC, enqueue', async t => {
    const shop = await postgresShop(t)
    await shop.select(enqueueStub)
    t.match(await example('Shop', 'enqueue', jdbc(shop)), /refused: no transaction/)
    t.same(await written(t, shop, 'enqueued'), ['java-1'])
  })
  for (const shop of await shops(t)) {
    await t.test(`Spring on ${shop.db.dialect}`, async t => {
      const said = await example('SpringShop', jdbc(shop))
      t.match(said, /refused: the card was refused/)
      t.match(said, /refused: No existing transaction found/)
      t.same(await written(t, shop), ['spring-1'])
    })
  }
})
