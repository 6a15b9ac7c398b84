// Loaded by `node --import` before Ackbox: with BENCH_ROLLUPS=off the counts by minute are neither counted nor written. Only
// this benchmark needs to turn them off, so the service has no setting for it.
import { register } from 'node:module'

const nothing = `
  const nothing = () => {}
  export const openStatistics = () =>
    ({ accepted: nothing, attempted: nothing, handled: nothing, failed: nothing, flush: async () => {} })`

/** The same hook on and off, so that both have its cost. */
const hooks = `
  export async function load(url, context, next) {
    if (!url.endsWith('/src/runtime/statistics.js') || ${process.env['BENCH_ROLLUPS'] !== 'off'}) return next(url, context)
    return { format: 'module', shortCircuit: true, source: ${JSON.stringify(nothing)} }
  }`

register(`data:text/javascript,${encodeURIComponent(hooks)}`)
