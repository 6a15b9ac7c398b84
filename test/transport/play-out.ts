import type { Test } from 'tap'
import { guard } from '../../src/transport/egress/guard.ts'
import { httpTransport } from '../../src/transport/http/http.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { bodyMs, ok, timeoutMs, type Row } from './downstreams.ts'
import { sendContext } from './send-context.ts'
import { rawServer } from './raw-server.ts'

/** The most that the kernel holds on both sides of a loopback connection: the server wrote it, and we never read it. */
const inKernel = 16 << 20

/** A transport on loopback that ends with the test. */
export function open(t: Test, limits = { bodyMs, connectMs: 300 }): ReturnType<typeof httpTransport> {
  const http = httpTransport({ guard: guard({ allow: undefined, embedded: true, deny: [] }), limits })
  t.teardown(() => http.close())
  return http
}

/** Rows with any outcome may end by it, too. */
const endsByDeadline = ({ outcome }: Row): boolean =>
  JSON.stringify(outcome).includes('timeout') || ('kind' in outcome && outcome.kind instanceof RegExp)

/** A busy machine takes this many times as long. */
const patience = 50

/** The first request gets the behaviour of the row. All later requests get a good answer. */
export function playOut(t: Test, row: Row): void {
  void t.test(row.name, async t => {
    const server = await rawServer(t, (socket, _request, nth) =>
      nth === 1 ? row.does(socket) : socket.write(ok)
    )
    // What ends by its bytes must not be a race against a deadline: a busy machine reads slowly.
    const times = endsByDeadline(row) ? 1 : patience
    const sendTimes = row.byMs === bodyMs ? patience : times
    const http = open(t, { bodyMs: bodyMs * times, connectMs: 300 * patience })
    const started = stopwatch(t)
    const sent = http.send(
      { url: server.url, body: '{}' },
      sendContext({ timeoutMs: timeoutMs * sendTimes }),
      row.accepted
    )
    const outcome = await sent
    const took = started()
    const first = [...server.open][0]
    t.match(outcome, row.outcome)
    t.ok(took < (row.byMs ?? timeoutMs) + 400, `ended by its deadline: ${Math.round(took)} ms`)
    if ('answer' in outcome) t.ok((outcome.answer?.length ?? 0) <= 16_384)
    const answer = 'answer' in outcome ? Buffer.from(outcome.answer ?? []).toString() : ''
    t.notMatch(JSON.stringify(outcome) + answer, /canary/)

    if (row.destroyed !== false && first) {
      if (!first.closed) await new Promise(resolve => first.once('close', resolve))
      t.ok(first.bytesWritten - first.writableLength < inKernel, 'it was not read to its end')
    }
    t.match(
      await http.send({ url: server.url, body: '{}' }, sendContext()),
      { kind: 'delivered', answer: Buffer.from('fine') },
      'and the next send works'
    )
  })
}
