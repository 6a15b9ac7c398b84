import t from 'tap'
import { databaseOutage, saysAway } from '../../src/service/loops.ts'
import { recordingLog } from '../queue/setup.ts'

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

t.test('an outage of the database is two lines of the log, however long it lasts', t => {
  const { log, lines } = recordingLog()
  let isAway = false
  const cluster = {
    isDatabaseAway: () => isAway,
    setDatabaseAway: () => {
      isAway = true
    },
    setDatabaseUnreachable: () => {
      isAway = true
    }
  }
  const outage = databaseOutage(cluster, log)
  const seen = () => lines.splice(0).map(({ level, message }) => [level, message])
  const lost = Object.assign(new Error('connection refused'), { code: 'ECONNREFUSED' })
  outage.looked()
  t.same(seen(), [])

  for (let n = 0; n < 3; n++) for (const loop of ['refresh', 'alarm']) outage.failed(loop)(lost)
  t.same(
    seen().filter(([level]) => level !== 'debug'),
    [['warn', 'database.unavailable']]
  )
  outage.failed('alarm')(new Error('a bug'))
  t.same(seen(), [['warn', 'alarm.failed']], 'what is no outage is still a warning')
  isAway = false
  outage.looked()
  outage.looked()
  t.same(seen(), [['info', 'database.available']])

  isAway = true
  outage.looked()
  outage.looked()
  t.same(seen(), [['warn', 'database.unavailable']], 'it answers, and is read-only')
  t.end()
})

t.test('only a look that is not answered says that the database cannot be reached', t => {
  const { log } = recordingLog()
  const said: string[] = []
  const cluster = {
    isDatabaseAway: () => false,
    setDatabaseAway: () => said.push('away'),
    setDatabaseUnreachable: () => said.push('unreachable')
  }
  const outage = databaseOutage(cluster, log)
  const failsWith = (loop: string, code: string) =>
    outage.failed(loop)(Object.assign(new Error('of PostgreSQL'), { code }))
  failsWith('refresh', 'ECONNREFUSED')
  failsWith('alarm', 'ECONNREFUSED')
  failsWith('alarm', '25006')
  failsWith('refresh', '57014')
  t.same(said, ['unreachable', 'away', 'away', 'away'], 'one that is read-only or locked answers other reads')
  t.end()
})
