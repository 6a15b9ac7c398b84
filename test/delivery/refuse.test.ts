import t from 'tap'
import { z } from 'zod'
import { Unavailable } from '../../src/runtime/errors.ts'
import { only } from '../support/only.ts'
import { taskRequest } from '../support/task-request.ts'
import { backAgain, throughBlackHole } from '../support/away.ts'
import { setup } from '../support/setup.ts'
import { stopwatch } from '../support/stopwatch.ts'

t.test('a body that the handler’s schema refuses is told where', async t => {
  const { accept, sql } = await setup(t, { handler: { body: z.object({ 'a/b': z.array(z.int()) }) } })
  t.match(await accept(taskRequest({ messageBody: '{"a/b":[1,"x"]}' })), {
    kind: 'invalid',
    pointer: '/messageBody/a~1b/1'
  })
  t.match(await accept(taskRequest({ messageBody: '{"a/b":["x",1,"y"]}' })), {
    errors: only({ pointer: '/messageBody/a~1b/0' }, { pointer: '/messageBody/a~1b/2' })
  })
  t.match(await accept(taskRequest({ messageCode: 'nobody' })), { kind: 'unknown_code' })
  const [{ count }] = await sql<[{ count: number }]>`select count(*)::int as count from task`
  t.equal(count, 0)
})

t.test('a bound is told in words that no answer has to escape', async t => {
  const body = z.object({ cents: z.int().min(1).max(9), weight: z.number().positive().lt(5) })
  const { accept } = await setup(t, { handler: { body } })
  const refused = async (cents: number, weight: number) =>
    await accept(taskRequest({ messageBody: JSON.stringify({ cents, weight }) }))
  t.match(await refused(0, 0), {
    errors: only(
      { detail: 'Too small: expected number to be ≥ 1' },
      { detail: 'Too small: expected number to be more than 0' }
    )
  })
  t.match(await refused(10, 5), {
    errors: only(
      { detail: 'Too big: expected number to be ≤ 9' },
      { detail: 'Too big: expected number to be less than 5' }
    )
  })
})

t.test('a schema that throws refuses that body only, and not with a 500', async t => {
  const body = z.object({ json: z.string().transform(text => JSON.parse(text) as unknown) })
  const { accept } = await setup(t, { handler: { body } })
  const answers = await accept.many([
    taskRequest({ messageBody: '{"json":"{}"}' }),
    taskRequest({ messageBody: '{"json":"{"}' }),
    taskRequest({ messageBody: '{"json":"[]"}' })
  ])
  t.match(
    answers,
    only({ kind: 'created' }, { kind: 'invalid', pointer: '/messageBody' }, { kind: 'created' })
  )
})

t.test('one row that PostgreSQL refuses fails alone, and the others of its batch are stored', async t => {
  const { accept, read } = await setup(t)
  const good = Array.from({ length: 9 }, () => taskRequest())
  const bad = taskRequest({ createdBy: 'a\0b' })
  const answers = await Promise.allSettled(
    [...good.slice(0, 4), bad, ...good.slice(4)].map(one => accept(one))
  )
  t.equal(answers.filter(answer => answer.status === 'fulfilled').length, 9)
  t.equal(answers[4]?.status, 'rejected')
  for (const { taskNo } of good) t.ok(await read(taskNo))
})

t.test(
  'PostgreSQL does not answer: 503 within 2 s, for everybody, and the same POST succeeds after it',
  async t => {
    const { hole, sql } = await throughBlackHole(t)
    const story = await setup(t, { sql })
    const known = taskRequest()
    await story.accept(known)
    await story.quiet()
    hole.swallow()
    const began = stopwatch(t)
    const lost = Array.from({ length: 20 }, () => taskRequest())
    const answers = await Promise.allSettled([...lost.map(one => story.accept(one)), story.accept(known)])
    const took = began()
    t.ok(answers.every(answer => answer.status === 'rejected' && answer.reason instanceof Unavailable))
    t.ok(took < 2_500, `${took} ms`)
    t.ok(story.around.isDatabaseAway())
    await t.rejects(story.accept(taskRequest()), Unavailable, 'at once, while it is away')
    hole.heal()
    await backAgain(story.around)
    const again = await Promise.all(lost.map(one => story.accept(one)))
    t.ok(again.every(answer => answer.kind === 'created' || answer.kind === 'same'))
    await story.quiet()
  }
)
