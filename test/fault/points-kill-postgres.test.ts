import t from 'tap'
import { killedAt } from './points-kill.ts'
import { moments } from './points.ts'

t.setTimeout(115_000)
t.jobs = 4

// The queue makes no difference to most moments: those around a hint and a send are tried with both.
for (const moment of moments.filter(({ name }) => /^(?:hint|deliver\.after|accept\.after)/.test(name)))
  t.test(`kill -9 at ${moment.name}, postgres: nothing is lost`, { buffered: true }, t =>
    killedAt(t, 'postgres', moment)
  )
