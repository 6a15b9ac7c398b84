import t from 'tap'
import { writeNode } from '../../src/db/cluster.ts'
import { repeat } from '../../src/runtime/repeat.ts'
import { throughBlackHole } from '../support/away.ts'
import { setup } from '../support/setup.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { until } from '../support/until.ts'

t.test(
  'PostgreSQL was gone for all: no dispatcher leaves the work to another one that has left it too',
  async t => {
    const { hole, sql, direct } = await throughBlackHole(t)
    const { post, queue, dispatching, quiet, around, logged } = await setup(t, { sql, sweepMs: 50 })
    await writeNode(direct, { id: 'we', roles: 'dispatcher', version: 'test' })
    const stop = new AbortController()
    t.teardown(() => stop.abort())
    // A whole process refreshes its view like this.
    void repeat(50, around.refresh, around.setDatabaseAway, stop.signal)
    await until('the other one is seen', () => around.dispatchers() === 2)
    queue.roomLeft = 0
    await post()
    await quiet()
    dispatching()
    hole.refuse()
    await until('its sweeps have failed many times', () => logged('dispatcher.yielded').length > 0)
    hole.heal()
    const back = stopwatch(t)
    queue.roomLeft = 1_000
    await until('what was due is claimed', async () => {
      const rows = await direct`select from delivery where attempt = 1`
      return rows.length === 1
    })
    const took = back()
    t.ok(took < 5_000, `${took} ms`)
  }
)
