// Takes long: npm run test:long.
import t from 'tap'
import { testDb } from '../support/postgres.ts'
import { testRedis } from '../support/redis.ts'
import { secret } from '../support/service.ts'
import { common, survives } from './crash.ts'

t.setTimeout(2_400_000)

t.test('kill -9 in the middle of 2,000 POSTs with receipts loses nothing, with BullMQ on Redis', async t => {
  const redis = await testRedis(t)
  if (!redis) return
  const { url } = await testDb(t)
  await survives(t, (downstream, port) => ({
    ...common(downstream, port),
    SECRET: secret,
    AUTH: 'off',
    DATABASE_URL: url,
    REDIS_URL: redis.url,
    REDIS_PREFIX: `crash${process.pid}`
  }))
})
