import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, statSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { findKey, hashKey } from '../../src/db/api-keys.ts'
import { demoHeader, dropDemoKey, keepDemoKey } from '../../src/demo/key.ts'
import { testDb } from '../support/postgres.ts'
import { folder } from '../support/service.ts'

t.test('the demo key is made once, and worth nothing once DEMO is off', async t => {
  const { url, sql } = await testDb(t)
  const dataDir = folder(t)
  const { key, file } = await keepDemoKey(url, dataDir)
  t.same(await keepDemoKey(url, dataDir), { key, file })
  t.equal(statSync(file).mode & 0o777, 0o600)
  t.match(await findKey(sql, hashKey(key)), { name: 'demo' })
  await dropDemoKey(url, dataDir)
  t.equal(await findKey(sql, hashKey(key)), null)
  t.notOk(existsSync(file))
  await dropDemoKey(url, dataDir)
  t.not((await keepDemoKey(url, dataDir)).key, key, 'the next demo gets its own')
})

t.test('a demo key that cannot be read is a warning, and does not prevent the start', async t => {
  const { url } = await testDb(t)
  const dataDir = folder(t)
  mkdirSync(path.join(dataDir, 'demo-key'))
  t.match(await dropDemoKey(url, dataDir), /^the key of an earlier DEMO=on may still be valid: EISDIR/)
  t.equal(await dropDemoKey(url, folder(t)), undefined)
})

t.test('the demo key is shown to a terminal; a log is told where it is kept, for a shell to read it', t => {
  const file = path.join(folder(t), `a "demo" key's $(place)`)
  writeFileSync(file, 'ack_demo\n')
  const shown = (isTerminal: boolean) => {
    const header = demoHeader({ key: 'ack_demo', file }, isTerminal)
    return [
      header.includes('ack_demo'),
      execFileSync('sh', ['-c', `printf '%s|' ${header}`], { encoding: 'utf8' })
    ]
  }
  t.same(shown(true), [true, '-H|authorization: Bearer ack_demo|'])
  t.same(shown(false), [false, '-H|authorization: Bearer ack_demo|'])
  t.end()
})
