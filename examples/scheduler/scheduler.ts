// One of several schedulers with the same cron line. All of them post every tick, without any contact between them.
import { setTimeout as sleep } from 'node:timers/promises'
import { client } from 'ackbox/producer'

const { ACKBOX_URL = '', FIRST_TICK = '', EVERY_MS = '1000' } = process.env
const ackbox = client({ url: ACKBOX_URL, retryForMs: 600_000 })
/** After a start, a scheduler posts the ticks of this time again: perhaps no scheduler has posted them. */
const lookBackMs = 3_600_000

const [first, every] = [Date.parse(FIRST_TICK), Number(EVERY_MS)]
const missed = Math.max(0, Math.ceil((Date.now() - lookBackMs - first) / every))
console.log('scheduler is ready')
for (let at = first + missed * every; ; at += every) {
  await sleep(Math.max(0, at - Date.now()))
  const tick = new Date(at).toISOString()
  // The taskNo is the job and its tick, so a second POST finds the same task.
  await ackbox.post({ taskNo: `billing:${tick}`, messageCode: 'billing.due', messageBody: { tick } })
}
