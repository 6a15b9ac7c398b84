import t from 'tap'
import { stoppedAt } from './points-stop.ts'
import { moments } from './points.ts'

t.setTimeout(1_800_000)
t.jobs = 4

for (const moment of moments)
  t.test(
    `stopped at ${moment.name} beyond its lease, and on again: nothing moves back`,
    { buffered: true },
    t => stoppedAt(t, 'redis', moment)
  )
