import { defineHandler } from 'ackbox/handler'
import plain from '../bench.ts'

/** As the plain handler, but its downstream must send a receipt. */
export default defineHandler({
  ...plain,
  downstreams: { 'bench-sink': { ...plain.downstreams['bench-sink'], needCallback: true } }
})
