import t from 'tap'
import { moments } from './points.ts'
import { broken, judge, postAgain, sound, story } from './story.ts'

t.setTimeout(115_000)
t.jobs = 4

for (const moment of moments)
  t.test(
    `stopped at ${moment.name} beyond its lease, and on again: nothing moves back`,
    { buffered: true },
    async t => {
      const of = await story(t, 'redis', moment.way)
      if (!of) return
      const taskNo = `stop:${moment.name}`
      const zombie = await broken(t, of, moment, 'stop', taskNo)
      const other = await sound(t, of)
      const again = await postAgain(other.url, taskNo, moment.way)
      t.ok(again === 200 || again === 201, `posted again: ${again}`)
      await judge(t, of, other.url, taskNo, moment)
      const before = await of.db
        .sql`select status, phase, reason, handled_by, handled_at, attempt from delivery`
      process.kill(zombie.pid, 'SIGCONT')
      // It says all it still has to say before it ends.
      const ended = moment.way === 'shutdown' ? zombie.exited : zombie.kill('SIGTERM')
      t.equal((await ended).code, 0, 'it goes on, drains and ends')
      t.strictSame(
        await of.db.sql`select status, phase, reason, handled_by, handled_at, attempt from delivery`,
        before,
        'what it still wrote touched nothing'
      )
      await judge(t, of, other.url, taskNo, moment)
      t.equal((await other.kill('SIGTERM')).code, 0)
    }
  )
