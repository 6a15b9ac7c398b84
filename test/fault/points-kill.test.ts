import t from 'tap'
import { moments } from './points.ts'
import { broken, judge, post, rtoMs, sound, story } from './story.ts'

t.setTimeout(115_000)
t.jobs = 4

for (const queue of ['redis', 'postgres'] as const)
  for (const moment of moments) {
    // The queue makes no difference to most: those around a hint and a send are tried with both.
    if (queue === 'postgres' && !/^(?:hint|deliver\.after|accept\.after)/.test(moment.name)) continue
    t.test(`kill -9 at ${moment.name}, ${queue}: nothing is lost`, { buffered: true }, async t => {
      const of = await story(t, queue, moment.way)
      if (!of) return
      const taskNo = `kill:${moment.name}`
      const died = await broken(t, of, moment, 'kill', taskNo)
      t.strictSame(await died.exited, { code: null, signal: 'SIGKILL' }, 'it died of its own hand')
      const next = await sound(t, of, died.port)
      const ready = performance.now()
      const again = await post(next.url, taskNo, moment.way)
      t.ok(again === 200 || again === 201, `posted again: ${again}`)
      await judge(t, of, next.url, taskNo, moment)
      if (moment.way === 'plain') {
        const took = Math.round(performance.now() - ready)
        t.ok(took < rtoMs + 5_000, `whole again after ${took} ms; ${rtoMs} and what a busy machine adds`)
      }
      t.equal((await next.kill('SIGTERM')).code, 0)
    })
  }
