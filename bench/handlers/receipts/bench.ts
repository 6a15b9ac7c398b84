import { defineHandler } from 'ackbox/handler'
import plain from '../bench.ts'

/** As the plain one, but it owes a receipt. */
export default defineHandler({
  ...plain,
  downstreams: { 'bench-sink': { ...plain.downstreams['bench-sink'], needCallback: true } }
})
