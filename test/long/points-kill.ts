import type { Test } from 'tap'
import { stopwatch } from '../support/stopwatch.ts'
import { broken, judge, postAgain, rtoMs, sound, story, type Moment } from '../fault/story.ts'

/** kill -9 at one moment of a task's way; another process on the same database makes all of it good. */
export async function killedAt(t: Test, queue: 'redis' | 'postgres', moment: Moment): Promise<void> {
  const of = await story(t, queue, moment)
  if (!of) return
  const taskNo = `kill:${moment.name}`
  const died = await broken(t, of, moment, 'kill', taskNo)
  t.strictSame(await died.exited, { code: null, signal: 'SIGKILL' }, 'it died of its own hand')
  const next = await sound(t, of, died.port)
  const ready = stopwatch(t)
  const again = await postAgain(next.url, taskNo, moment.way)
  t.ok(again === 200 || again === 201, `posted again: ${again}`)
  await judge(t, of, next.url, taskNo, moment)
  if (moment.way === 'plain') {
    const took = Math.round(ready())
    t.ok(took < rtoMs + 5_000, `whole again after ${took} ms; ${rtoMs} and what a busy machine adds`)
  }
  t.equal((await next.kill('SIGTERM')).code, 0)
}
