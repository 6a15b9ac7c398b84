import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import { limitedSignal } from '../../src/runtime/limited-signal.ts'

t.test('the limit of a wait holds, also if memory is collected meanwhile', async t => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const stop = new AbortController()
  const aborted = new Promise(resolve => {
    limitedSignal(stop.signal, 20).signal.addEventListener('abort', resolve)
  })
  collect()
  await aborted
  t.pass('it has aborted')
})

t.test('it ends with the process, and leaves nothing when its work has ended', async t => {
  const stop = new AbortController()
  const first = limitedSignal(stop.signal, 60_000)
  const second = limitedSignal(stop.signal, 60_000)
  second.end()
  stop.abort(new Error('the process stops'))
  t.match(first.signal, { aborted: true, reason: { message: 'the process stops' } })
  t.notOk(second.signal.aborted)
  first.end()
  t.ok(limitedSignal(stop.signal, 60_000).signal.aborted)
})
