import { existsSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { findKey, hashKey } from '../../src/db/keys.ts'
import { dropDemoKey, keepDemoKey } from '../../src/demo/key.ts'
import { testDb } from '../support/postgres.ts'
import { folder } from '../support/service.ts'

t.test('the demo key is made once, and worth nothing once DEMO is off', async t => {
  const { url, sql } = await testDb(t)
  const dataDir = folder(t)
  const key = await keepDemoKey(url, dataDir)
  t.equal(await keepDemoKey(url, dataDir), key)
  t.match(await findKey(sql, hashKey(key)), { name: 'demo' })
  await dropDemoKey(url, dataDir)
  t.equal(await findKey(sql, hashKey(key)), null)
  t.notOk(existsSync(path.join(dataDir, 'demo-key')))
  await dropDemoKey(url, dataDir)
  t.not(await keepDemoKey(url, dataDir), key, 'the next demo gets its own')
})
