// The headers that our handlers add to each request: its sending process, and its time. The sink reads a request later than it
// was sent, on a busy machine by more than a second. The sender may be dead by then, and the port of the connection then leads
// to no process, even right after the accept. The headers work on any operating system.
import { env } from 'ackbox/handler'
import { senderVariable } from './terms.ts'

/** The name of this launch of a process, and the monotonic clock of the machine, in ns. */
export const stamp = (): Record<string, string> => ({
  'chaos-sender': env[senderVariable] ?? '',
  'chaos-built': `${process.hrtime.bigint()}`
})
