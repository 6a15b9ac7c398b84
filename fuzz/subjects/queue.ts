// BullMQ on a hostile Redis: the code that adds hints, and the workers that take them.
import { primaryOf } from '../../src/db/hosts.ts'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Subject } from '../child.ts'
import { openBackend } from '../../src/queue/backend.ts'
import { QueueServerError } from '../../src/queue/redis.ts'
import { runWorkers } from '../../src/queue/worker.ts'

const playMs = 400
const addMs = 3_000
const closeMs = 5_000
const stopMs = 8_000

export const subject: Subject<{ url: string }, { port: number }> = async ({ url }) => ({
  async play({ port }, within) {
    const log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} }
    const opening = openBackend({
      redisUrl: url.replace('{port}', String(port)),
      database: primaryOf(''),
      prefix: 'ackbox',
      queues: ['orders'],
      worker: 'fuzz',
      log
    })
    let backend
    try {
      backend = await within('open', closeMs, opening)
    } catch (error) {
      // A start may end with this error: the Redis is too old, or does not know us
      if (error instanceof QueueServerError) return { refused: error.message }
      throw error
    }
    const stop = new AbortController()
    let added = 0
    let taken = 0
    const working = runWorkers({
      backend,
      downstreams: [{ name: 'orders', concurrency: 10, leaseMs: 30_000 }],
      run: async ({ deliveries }) => {
        taken += deliveries.length
      },
      log,
      signal: stop.signal
    })
    // As in the callers: an add without a connection would wait for ever, and is given up after 250 ms
    const hint = async (): Promise<void> => {
      if (!backend.up()) return
      await backend.add('orders', [[['00000000-0000-4000-8000-000000000000', 1]]]).then(
        () => added++,
        () => {}
      )
    }
    const adding = hint()
    await sleep(playMs)
    stop.abort()
    await within('the end of the workers', stopMs, working)
    await within('close', closeMs, backend.close())
    await within('add', addMs, adding)
    return { added, taken }
  }
})
