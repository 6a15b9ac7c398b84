import type { Test } from 'tap'
import { broken, judge, postAgain, sound, story, type Moment } from '../fault/story.ts'

/** On a busy machine the first process may have no time to send: its story begins again, at most so often. */
const mostTries = 5

/** SIGSTOP at one moment of a task's way, until another process has made it good; then SIGCONT. */
export async function stoppedAt(
  t: Test,
  queue: 'redis' | 'postgres',
  moment: Moment,
  tries = 1
): Promise<void> {
  const of = await story(t, queue, moment)
  if (!of) return
  const taskNo = `stop:${moment.name}`
  const zombie = await broken(t, of, moment, 'stop', taskNo)
  if (moment.isStale && of.sink.requests.length === 0 && tries < mostTries) {
    // Its first write is no outcome: it had no time left to send, and released the delivery.
    await zombie.kill('SIGKILL')
    return await stoppedAt(t, queue, moment, tries + 1)
  }
  const other = await sound(t, of)
  const again = await postAgain(other.url, taskNo, moment.way)
  t.ok(again === 200 || again === 201, `posted again: ${again}`)
  await judge(t, of, other.url, taskNo, moment)
  const look = () => of.db.sql`select status, phase, reason, handled_by, handled_at, attempt from delivery`
  const before = await look()
  process.kill(zombie.pid, 'SIGCONT')
  // It says all it still has to say before it ends.
  const ended = moment.way === 'shutdown' ? zombie.exited : zombie.kill('SIGTERM')
  t.equal((await ended).code, 0, 'it goes on, drains and ends')
  t.strictSame(await look(), before, 'what it still wrote touched nothing')
  if (moment.isStale) {
    t.match(zombie.output(), /"msg":"attempt\.stale"/, 'it did write, and was told that it came too late')
    const kept = await of.db.sql`select attempt from attempt order by attempt`
    const sent = of.sink.requests.filter(each => each.path === '/faulty')
    t.ok(sent.length > 1)
    for (const { headers } of sent)
      t.ok(
        kept.some(row => String(row['attempt']) === headers['ackbox-attempt']),
        `attempt ${String(headers['ackbox-attempt'])} is kept`
      )
  }
  await judge(t, of, other.url, taskNo, moment)
  t.equal((await other.kill('SIGTERM')).code, 0)
}
