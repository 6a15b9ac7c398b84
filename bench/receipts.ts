// Receipts as a downstream sends them: the task and its token, posted to the callback URL of the request.
import { connection, field } from './http1.ts'

type Connection = ReturnType<typeof connection>

/** As many connections as the producers have. The one freed last is used first, so that only as many as needed are opened. */
const most = 256
let origin = ''
let idle: Connection[] = []
let opened = 0
let waiting: ((free: Connection) => void)[] = []

/** Sends the receipt of the request with this head. Returns whether it was accepted. It is sent once: a refusal is a loss. */
export async function acknowledge(head: string): Promise<boolean> {
  const target = new URL(field(head, 'ackbox-callback-url'))
  if (target.origin !== origin) begin(target.origin)
  const from = origin
  const over = idle.pop() ?? (await another(target))
  const status = await over.post(
    target.pathname,
    `{"taskNo":"${field(head, 'ackbox-task-no')}","messageCode":"${field(head, 'ackbox-message-code')}","result":"HANDLED"}`,
    `ackbox-callback-token: ${field(head, 'ackbox-callback-token')}\r\n`
  )
  if (from !== origin) over.close()
  else (waiting.shift() ?? (free => idle.push(free)))(over)
  return status >= 200 && status <= 299
}

/** The next service is another process: the connections to the former one are useless. */
function begin(next: string): void {
  for (const one of idle) one.close()
  origin = next
  idle = []
  waiting = []
  opened = 0
}

async function another(target: URL): Promise<Connection> {
  if (opened < most) {
    opened++
    return connection(target)
  }
  return await new Promise(resolve => waiting.push(resolve))
}
