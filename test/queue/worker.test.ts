import t from 'tap'
import type { Backend, JobConsumer, ReceivedJob } from '../../src/queue/backend.ts'
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

t.test('a take that never gets an answer does not stop its queue for ever', async t => {
  const stop = new AbortController()
  const { log, lines } = recordingLog()
  let closed = 0
  const dead: JobConsumer = { ...emptyConsumer(() => {}), close: async () => void closed++ }
  const alive: JobConsumer = {
    ...emptyConsumer(() => {}),
    take: async () => ({ deliveries: [['1', 1]], done: async () => {} })
  }
  const consumers = [dead, alive]
  await runWorkers({
    backend: { consumer: async () => consumers.shift(), ping: async () => {} } as Partial<Backend> as Backend,
    downstreams: [downstream('shop')],
    run: async () => stop.abort(),
    log,
    signal: stop.signal,
    takeMs: 20
  })
  t.equal(closed, 1)
  t.same(
    lines.map(({ message, fields }) => [message, fields['reason']]),
    [['queue.failing', 'no answer to a take in 20 ms']]
  )
})

t.test('a job that a take brings after it was given up runs all the same', async t => {
  const stop = new AbortController()
  const { log } = recordingLog()
  let bring: (job: ReceivedJob) => void = () => {}
  const late: JobConsumer = {
    ...emptyConsumer(() => {}),
    take: () =>
      new Promise(resolve => {
        bring = resolve
      })
  }
  const empty = emptyConsumer(() => bring({ deliveries: [['1', 1]], done: async () => {} }))
  const consumers = [late, empty]
  const ran: string[] = []
  await runWorkers({
    backend: { consumer: async () => consumers.shift(), ping: async () => {} } as Partial<Backend> as Backend,
    downstreams: [downstream('shop')],
    run: async ({ deliveries }) => {
      ran.push(...deliveries.map(({ taskId }) => taskId))
      stop.abort()
    },
    log,
    signal: stop.signal,
    takeMs: 20
  })
  t.same(ran, ['1'])
})

t.test(
  'a take waits as long as the server is away: given up again and again it would fill the memory',
  async t => {
    const stop = new AbortController()
    const { log, lines } = recordingLog()
    let consumers = 0
    let pings = 0
    let answer = (): void => {}
    const waiting: JobConsumer = {
      ...emptyConsumer(() => {}),
      take: () =>
        new Promise(resolve => {
          answer = () => resolve({ deliveries: [['1', 1]], done: async () => {} })
        })
    }
    const away = async (): Promise<void> => {
      pings++
      // One ping gets no answer at all.
      if (pings === 3) return new Promise(() => {})
      if (pings === 4) answer()
      throw new Error('the server is away')
    }
    await runWorkers({
      backend: {
        consumer: async () => {
          consumers++
          return waiting
        },
        ping: away
      } as Partial<Backend> as Backend,
      downstreams: [downstream('shop')],
      run: async () => stop.abort(),
      log,
      signal: stop.signal,
      takeMs: 10
    })
    t.equal(consumers, 1)
    t.equal(pings, 4)
    t.same(lines, [])
  }
)

t.test('a process holds no more than its rate can start within an eighth of a lease', async t => {
  const held = async (perSecond: number | undefined, share?: number) => {
    const stop = new AbortController()
    let taken = 0
    const consumer: JobConsumer = {
      take: async () => ({ deliveries: [[String(++taken), 1]], done: async () => {} }),
      interrupt: async () => {},
      close: async () => {}
    }
    const running: (() => void)[] = []
    const ended = runWorkers({
      backend: { consumer: async () => consumer } as Partial<Backend> as Backend,
      downstreams: [
        {
          ...downstream('shop', { leaseMs: 20_000, ...(perSecond !== undefined && { perSecond }) }),
          ...(share !== undefined && { share: () => share })
        }
      ],
      run: () => new Promise(resolve => running.push(resolve)),
      log: recordingLog().log,
      signal: stop.signal
    })
    let before = -1
    while (taken > before) {
      before = taken
      for (let n = 0; n < 10; n++) await new Promise(resolve => setImmediate(resolve))
    }
    stop.abort()
    for (const end of running) end()
    // A job that is taken while the signal aborts still runs.
    const rest = setInterval(() => running.forEach(end => end()))
    await ended
    clearInterval(rest)
    return before
  }
  t.equal(await held(undefined), 16)
  t.equal(await held(1), 3)
  t.equal(await held(2, 0.5), 3)
  t.equal(await held(0.1), 1)
  t.equal(await held(100), 16)
})
