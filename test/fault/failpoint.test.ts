import t from 'tap'
import { readConfig } from '../../src/service/config.ts'
import {
  armFailpoints,
  failpoint,
  failpointAmid,
  failpoints,
  parseFailpoints
} from '../../src/runtime/failpoint.ts'
import { only } from '../support/only.ts'

t.test('a moment is asked for by its name, an action, and a hit or a chance', async t => {
  t.strictSame(
    parseFailpoints('accept.before_commit=kill#3, queue.before_add=sleep:500%10'),
    new Map([
      ['accept.before_commit', { action: 'kill', ms: 0, hit: 3, probability: 1 }],
      ['queue.before_add', { action: 'sleep', ms: 500, hit: undefined, probability: 0.1 }]
    ])
  )
  for (const name of failpoints) t.type(parseFailpoints(`${name}=stop`), Map, name)
})

t.test('a name or an action that there is not is said, and the process does not start', async t => {
  t.match(
    parseFailpoints('accept.between=kill'),
    /has the unknown name accept\.between: the names are accept\.before_commit/
  )
  t.match(parseFailpoints('queue.after_add=kill#1,queue.after_add=stop'), /names queue\.after_add twice/)
  for (const wrong of [
    'queue.before_add=kill#0',
    'queue.before_add=kill%0',

    'accept.before_commit',
    'queue.before_add=explode',
    'queue.before_add=sleep',
    'queue.before_add=kill#',
    ''
  ])
    t.match(parseFailpoints(wrong), /must be like/, wrong)
  t.throws(() => readConfig({ FAILPOINTS: 'queue.before_add=explode' }), /FAILPOINTS must be like/)
})

t.test('in production it is refused, and where it is set a start says so', async t => {
  const env = { FAILPOINTS: 'queue.before_add=kill' }
  t.throws(
    () => readConfig({ ...env, NODE_ENV: 'production' }),
    /FAILPOINTS is for tests.*NODE_ENV=production/
  )
  t.match(readConfig(env).warnings, only(/FAILPOINTS is set: this process breaks at queue\.before_add/))
  t.same(readConfig({}).failpoints.size, 0)
})

t.test('what is armed throws or holds up the whole process, on its hit and on no other', async t => {
  t.teardown(() => armFailpoints(new Map()))
  const asked = parseFailpoints('queue.before_add=throw#2,queue.after_add=sleep:50')
  if (typeof asked === 'string') throw new Error(asked)
  armFailpoints(asked)
  failpoint('queue.before_add')
  t.throws(() => failpoint('queue.before_add'), /failpoint queue\.before_add/)
  failpoint('queue.before_add')
  const began = performance.now()
  failpoint('queue.after_add')
  t.ok(performance.now() - began >= 49)
  failpoint('accept.before_commit')
  const work = Promise.resolve('as it was')
  t.equal(failpointAmid('execute.after_send', work), work, 'what is not armed costs nothing')
  armFailpoints(new Map())
  failpoint('queue.before_add')
})
