import t from 'tap'
import { killedAt } from './points-kill.ts'
import { moments } from './points.ts'

t.setTimeout(1_800_000)
t.jobs = 4

for (const moment of moments)
  t.test(`kill -9 at ${moment.name}, redis: nothing is lost`, { buffered: true }, t =>
    killedAt(t, 'redis', moment)
  )
