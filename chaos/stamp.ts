// What our handlers put on each request: which process sends it, and since when. The sink reads a request later than it was
// sent, on a busy machine by more than a second. Its sender may be dead by then, and a look at whose port the connection has
// finds nobody, even right after the accept. The request itself still says it, on any operating system.
import { env } from 'ackbox/handler'
import { senderVariable } from './terms.ts'

/** The name of this launch of a process, and the monotonic clock of the machine, in ns. */
export const stamp = (): Record<string, string> => ({
  'chaos-sender': env[senderVariable] ?? '',
  'chaos-built': `${process.hrtime.bigint()}`
})
