// The queue makes no difference to most moments: those around a job and a send are tried with BullMQ on PostgreSQL too.
import t from 'tap'
import { killedAt } from './points-kill.ts'
import { stoppedAt } from './points-stop.ts'
import { moments } from './points.ts'

t.setTimeout(1_800_000)
t.jobs = 4

const around = /^(?:queue|execute\.after|accept\.after)/
for (const moment of moments.filter(({ name }) => around.test(name))) {
  t.test(`kill -9 at ${moment.name}, postgres: nothing is lost`, { buffered: true }, t =>
    killedAt(t, 'postgres', moment)
  )
  if (!moment.name.startsWith('execute')) continue
  t.test(`stopped at ${moment.name}, postgres: nothing moves back`, { buffered: true }, t =>
    stoppedAt(t, 'postgres', moment)
  )
}
