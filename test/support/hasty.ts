// Runs the service with faster timers: timers of 80 s and more fire 79 s earlier, in the same order.
import timers from 'node:timers'
import { promisify } from 'node:util'

const { setTimeout: real } = globalThis
const soon = (ms = 0): number => (ms >= 80_000 ? ms - 79_000 : ms)

const hasty = Object.assign((done: () => void, ms?: number) => real(done, soon(ms)), {
  [promisify.custom]: (ms?: number, value?: unknown) =>
    new Promise(resolve => real(() => resolve(value), soon(ms)))
})
Object.assign(globalThis, { setTimeout: hasty })
Object.assign(timers, { setTimeout: hasty })

await import('../../src/main.ts')
