import { createRequire } from 'node:module'
import net from 'node:net'
import postgres from 'postgres'
import t from 'tap'
import { emptyDb } from '../support/postgres.ts'

// Both copies in the package are patched: ours is loaded by `import`, the other by whoever says `require`.
const copies = {
  import: postgres,
  require: createRequire(import.meta.url)('postgres') as typeof postgres
}

for (const [how, connect] of Object.entries(copies)) {
  t.test(`every backend is killed under load, again and again, and the process lives (${how})`, async t => {
    const url = await emptyDb(t)
    const sql = connect(url, { max: 8, onnotice: () => {}, backoff: () => 0.01 })
    const killer = connect(url, { max: 1, onnotice: () => {} })
    await sql`create table pair (n int, half int)`

    let n = 0
    let broken = 0
    const until = Date.now() + 1_500
    const inTransactions = async () => {
      while (Date.now() < until) {
        const mine = ++n
        await sql
          .begin(async tx => {
            await tx`insert into pair values (${mine}, 1)`
            await tx`select pg_sleep(0.005)`
            // Does something else than SQL, as real code does, and does not hear that the connection is gone.
            await new Promise(resolve => setImmediate(resolve))
            await tx`insert into pair values (${mine}, 2)`.catch(
              () => tx`insert into pair values (${mine}, 2)`
            )
          })
          .catch(() => {
            broken++
          })
      }
    }
    const inReserved = async () => {
      while (Date.now() < until) {
        const own = await sql.reserve().catch(() => undefined)
        if (!own) continue
        for (let i = 0; i < 3; i++) {
          await own`select pg_sleep(0.003)`.catch(() => {
            broken++
          })
          await new Promise(resolve => setImmediate(resolve))
        }
        own.release()
      }
    }
    const plain = async () => {
      while (Date.now() < until) {
        await sql`select ${++n}::int as n, pg_sleep(0.001)`.catch(() => {
          broken++
        })
      }
    }
    const kill = async () => {
      while (Date.now() < until) {
        await killer`
          select pg_terminate_backend(pid) from pg_stat_activity
          where datname = current_database() and pid <> pg_backend_pid()`
        await new Promise(resolve => setTimeout(resolve, 40))
      }
    }
    const settled = Promise.all([
      ...Array.from({ length: 6 }, inTransactions),
      ...Array.from({ length: 2 }, inReserved),
      ...Array.from({ length: 6 }, plain),
      kill()
    ]).then(() => 'settled')
    t.equal(await Promise.race([settled, timeout(8_000)]), 'settled', 'no statement waits for ever')
    t.ok(broken > 0, 'connections really were lost')

    const after = Promise.all(
      Array.from({ length: 30 }, async (_, i) => (await sql`select ${i}::int as i`)[0]?.['i'])
    )
    t.same(
      await Promise.race([after, timeout(5_000)]),
      Array.from({ length: 30 }, (_, i) => i),
      'each seat of the pool works'
    )
    const torn = await sql`select n from pair group by n having count(*) <> 2`
    t.same([...torn], [], 'nothing of a lost transaction ran outside of it')
    await sql.end({ timeout: 1 })
    await killer.end({ timeout: 1 })
  })

  t.test(`after an error half-way through the rows the next result is whole (${how})`, async t => {
    const sql = connect(await emptyDb(t), { max: 1, onnotice: () => {} })
    await t.rejects(sql`select 100 / (5 - i) as n from generate_series(1, 9) as i`, { code: '22012' })
    const rows = await sql`select i from generate_series(1, 2) as i`
    t.same([...rows], [{ i: 1 }, { i: 2 }])
    t.equal(rows.length, 2)
    await sql.end({ timeout: 1 })
  })

  t.test(`a proxy that accepts and hangs up is heard of at once (${how})`, async t => {
    let connections = 0
    const proxy = net.createServer(socket => {
      connections++
      socket.on('error', () => {})
      socket.end()
    })
    await new Promise<void>(resolve => proxy.listen(0, '127.0.0.1', resolve))
    const { port } = proxy.address() as net.AddressInfo
    const sql = connect(`postgres://x:x@127.0.0.1:${port}/x`, { max: 1 })
    const answer = sql`select 1`.then(
      () => 'rows',
      (err: { code: string }) => err.code
    )
    t.equal(await Promise.race([answer, timeout(2_000)]), 'CONNECTION_CLOSED')
    t.ok(connections < 5, 'without hammering it')
    await sql.end({ timeout: 1 })
    proxy.close()
  })
}

async function timeout(ms: number): Promise<string> {
  return await new Promise(resolve => setTimeout(resolve, ms, 'timeout').unref())
}
