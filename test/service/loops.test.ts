import t from 'tap'
import { saysAway } from '../../src/service/loops.ts'

t.test('a periodic statement that takes too long does not turn POSTs into 503', t => {
  const withCode = (code: string) => Object.assign(new Error('of PostgreSQL'), { code })
  const [tooLong, locked, lost] = [withCode('57014'), withCode('55P03'), withCode('CONNECTION_CLOSED')]
  const ofDrizzle = new Error('Failed query', { cause: tooLong })
  for (const loop of ['alarm', 'retention', 'count', 'statistics']) {
    t.notOk(saysAway(loop, tooLong), loop)
    t.notOk(saysAway(loop, locked), loop)
    t.notOk(saysAway(loop, ofDrizzle), loop)
    t.ok(saysAway(loop, lost), loop)
  }
  t.ok(saysAway('refresh', tooLong), 'this statement reads little')
  t.ok(saysAway('refresh', lost))
  t.notOk(saysAway('refresh', new Error('a bug')))
  t.end()
})
