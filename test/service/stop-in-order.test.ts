import t from 'tap'
import { allEnded, stopInOrder } from '../../src/service/stop-in-order.ts'

t.test('a part that cannot be ended keeps no other part from ending, and is told', async t => {
  const ended: string[] = []
  const logged: object[] = []
  const log = { error: (fields: object, message: string) => void logged.push({ ...fields, message }) }
  const stopped = stopInOrder(log, [
    ['first', () => ended.push('first')],
    [
      'api',
      () => {
        throw new Error('at once')
      }
    ],
    ['queue', () => Promise.reject(new Error('later'))],
    ['last writes', async () => void ended.push('last writes')]
  ])
  await t.rejects(stopped, { cause: { message: 'at once' } })
  t.same(ended, ['first', 'last writes'])
  t.match(logged, [
    { part: 'api', err: { message: 'at once' }, message: 'stop.failed' },
    { part: 'queue', err: { message: 'later' }, message: 'stop.failed' }
  ])
})

t.test('of several that end together one that fails does not cut off the others', async t => {
  let isDone = false
  const slow = new Promise<void>(resolve =>
    setImmediate(() => {
      isDone = true
      resolve()
    })
  )
  await t.rejects(allEnded([Promise.reject(new Error('away')), slow]), { message: 'away' })
  t.ok(isDone)
})
