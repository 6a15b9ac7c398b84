// A machine boots: PostgreSQL, a process and a relay start at the same time.
import { chownSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import postgres from 'postgres'
import t from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import { ddl } from '../../src/producer/ddl.ts'
import { dataFolder } from '../support/cluster.ts'
import { ownPostgres } from '../support/own-postgres.ts'
import { program } from '../support/program.ts'
import { folder, launch } from '../support/service.ts'
import { stage } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

const bin = path.resolve(import.meta.dirname, '../../src/cli/ackbox.js')

t.test(
  'a start and a relay wait for a PostgreSQL that is down, then starts, and end at a signal',
  async t => {
    const on = await stage(t)
    if (!on) return
    const dataDir = await dataFolder(t)
    const own = await ownPostgres(t, dataDir, { hot_standby: 'off' })
    await own.sql.unsafe(ddl.postgres)
    await own.kill('SIGQUIT')
    const env = { ...on.env, DATABASE_URL: own.url, PORT: String(await freePort()) }
    const relay = () =>
      program(t, process.execPath, [bin, 'relay', '--from', own.url, '--to', 'http://127.0.0.1:1'], {
        env: {},
        cwd: folder(t)
      })
    const waiting = /"remedy":"check the URL.*"msg":"(?:database.unavailable|relay.waiting)"/
    const stopped = launch(t, env)
    const stoppedRelay = relay()
    await until('it waits', () => waiting.test(stopped.output()))
    t.same(await stopped.kill('SIGTERM'), { code: 0, signal: null }, 'a signal ends a start that waits')
    await stoppedRelay.said(waiting)
    t.equal(await stoppedRelay.stop('SIGINT'), 0, 'and a relay')

    const service = launch(t, env)
    const relaying = relay()
    await until('it waits', () => waiting.test(service.output()))
    await relaying.said(waiting)
    // It recovers from its crash, and answers nobody until it is promoted.
    const inData = (name: string, text: string): void => {
      const { uid, gid } = statSync(path.join(dataDir, 'postgres/PG_VERSION'))
      writeFileSync(path.join(dataDir, 'postgres', name), text)
      chownSync(path.join(dataDir, 'postgres', name), uid, gid)
    }
    inData('standby.signal', '')
    const starting = own.start()
    const client = postgres(own.url, { max: 1, fetch_types: false })
    t.teardown(() => client.end())
    await until('it says that it is not ready', () =>
      client`select 1`.then(
        () => false,
        (err: { code?: string }) => err.code === '57P03'
      )
    )
    const late = launch(t, { ...env, PORT: String(await freePort()) })
    await until('it waits', () => /"msg":"database.unavailable"/.test(late.output()))
    t.notMatch(late.output(), /"remedy"/, 'the server has said what is wrong')
    inData('promote', '')
    process.kill(
      Number(readFileSync(path.join(dataDir, 'postgres/postmaster.pid'), 'utf8').split('\n')[0]),
      'SIGUSR1'
    )
    await starting
    for (const process of [service, late]) {
      await until('it has started', () => /"msg":"ready"/.test(process.output()))
      t.match(process.output(), /"msg":"database.available"/)
      t.equal(process.output().match(/"msg":"database.unavailable"/g)?.length, 1, 'one line')
      t.same(await process.kill('SIGTERM'), { code: 0, signal: null })
    }
    await relaying.said(/"msg":"relay.ready"/)
    t.equal(await relaying.stop(), 0)
  }
)
