// A real Ackbox and a receiver that is killed at critical places: its work is done exactly once, and its receipt arrives.
import path from 'node:path'
import t from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import { signingSecret } from '../../src/domain/tokens.ts'
import { folder, launch, postUntilTaken, secret, settled, start } from '../support/service.ts'
import { stage } from '../support/stage.ts'
import { postgresBank } from './databases.ts'

t.setTimeout(600_000)

const places: Record<string, { handledBy: string; attempt: number }> = {
  // The answer was lost: the repeat is answered with the stored result.
  'after-commit': { handledBy: 'answer', attempt: 2 },
  'before-commit': { handledBy: 'answer', attempt: 2 },
  // It was answered 202: the receipt of the transaction is sent by the next process.
  'after-early': { handledBy: 'receipt', attempt: 1 }
}

for (const [place, { handledBy, attempt }] of Object.entries(places))
  t.test(`killed ${place}: its work is done once, and the task ends HANDLED`, async t => {
    const at = await stage(t)
    if (!at) return
    const bank = await postgresBank(t)
    const port = String(await freePort())
    const env = {
      DATABASE_URL: bank.url,
      SECRET_OF: signingSecret(secret, 'points'),
      PORT: port,
      DIES: place,
      MARK: path.join(folder(t), 'died')
    }
    const program = path.join(import.meta.dirname, 'dying.js')
    const first = launch(t, env, program)
    const { url } = await start(t, {
      ...at.env,
      HANDLERS_DIR: path.resolve(import.meta.dirname, 'handlers'),
      TEST_RECEIVER: `http://127.0.0.1:${port}`,
      EGRESS_ALLOW: `${at.env['EGRESS_ALLOW']},127.0.0.1:${port}`
    })
    const task = { taskNo: 'points-1', messageCode: 'order.paid', messageBody: { points: 7 } }
    t.ok((await postUntilTaken(() => url, task)).status < 300)
    t.match(await first.exited, { signal: 'SIGKILL' })
    launch(t, env, program)
    const { body } = await settled(url, 'points-1')
    t.match(body, { status: 'HANDLED', deliveries: [{ handledBy }] })
    const [delivery] = (body?.['deliveries'] ?? []) as { attempt: number }[]
    // While the receiver is down, more attempts may fail.
    t.ok((delivery?.attempt ?? 0) >= attempt)
    t.equal(await bank.granted(), 7)
  })
