import t from 'tap'
import type { Backend, JobConsumer } from '../../src/queue/backend.ts'
import { runWorkers } from '../../src/queue/worker.ts'
import { downstream, recordingLog } from './setup.ts'

/** The consumer of a queue that stays empty. */
function emptyConsumer(onTake: () => void): JobConsumer {
  let end = (): void => {}
  return {
    take: () =>
      new Promise(resolve => {
        end = () => resolve(undefined)
        onTake()
      }),
    interrupt: async () => end(),
    close: async () => {}
  }
}

t.test('more than ten downstreams were told to be a memory leak, in the midst of the log', async t => {
  const warnings: Error[] = []
  const warned = (warning: Error) => warnings.push(warning)
  process.on('warning', warned)
  t.teardown(() => process.off('warning', warned))
  const stop = new AbortController()
  const names = Array.from({ length: 12 }, (_, n) => `d${n}`)
  let waiting = 0
  await new Promise<void>(resolve => {
    const consumer = async () => emptyConsumer(() => ++waiting === names.length && resolve())
    const ended = runWorkers({
      backend: { consumer } as Partial<Backend> as Backend,
      downstreams: names.map(name => downstream(name)),
      run: async () => {},
      log: recordingLog().log,
      signal: stop.signal
    })
    t.teardown(async () => {
      stop.abort()
      await ended
    })
  })
  // Node emits the warning in the next turn of the event loop.
  await new Promise(resolve => setImmediate(resolve))
  t.same(
    warnings.map(warning => warning.message),
    []
  )
})

t.test('a stop while the consumer is opened does not wait for a job', async t => {
  const stop = new AbortController()
  let takes = 0
  await runWorkers({
    backend: {
      consumer: async () => {
        stop.abort()
        return emptyConsumer(() => takes++)
      }
    } as Partial<Backend> as Backend,
    downstreams: [downstream('shop')],
    run: async () => {},
    log: recordingLog().log,
    signal: stop.signal
  })
  t.equal(takes, 0)
})
