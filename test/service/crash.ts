import path from 'node:path'
import type { Test } from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import { eachOf, postUntilTaken, settled, start, type Answer, type Process } from '../support/service.ts'
import { sink, type Sink } from '../support/sink.ts'

const tasks = 2_000

export const common = (downstream: Sink, port: string) => ({
  PORT: port,
  HANDLERS_DIR: path.resolve(import.meta.dirname, '../support/patient'),
  TEST_SINK: downstream.url,
  LEASE_MARGIN_MS: '1500',
  DEMO: 'off',
  EGRESS_ALLOW: new URL(downstream.url).host
})

/** kill -9 in the middle of the POSTs, twice; every task that was answered 2xx must end HANDLED. */
export async function survives(
  t: Test,
  env: (downstream: Sink, port: string) => Record<string, string>
): Promise<void> {
  const downstream = await sink(t)
  const port = String(await freePort())
  let service: Process = await start(t, env(downstream, port))
  const answered: string[] = []
  let next = 0
  const producer = async (): Promise<void> => {
    while (next < tasks) {
      const n = next++
      const taskNo = `crash-${n}`
      await postUntilTaken(() => service.url, { taskNo, messageCode: 'test.receipt', messageBody: { n } })
      answered.push(taskNo)
    }
  }
  const producers = Promise.all(Array.from({ length: 32 }, producer))
  for (const at of [500, 1_200]) {
    await downstream.received(at)
    const died = await service.kill('SIGKILL')
    t.equal(died.signal, 'SIGKILL', 'it was killed in the middle')
    service = await start(t, env(downstream, port))
  }
  await producers
  t.equal(answered.length, tasks, 'every task was answered with 2xx in the end')
  const ends = await eachOf(answered, taskNo => settled(service.url, taskNo))
  const wrong = ends.filter(end => end.body?.['status'] !== 'HANDLED')
  t.same(wrong.slice(0, 3), [], 'all of them ended HANDLED')
  t.ok(
    answered.every(taskNo => downstream.count(taskNo) > 0),
    'and each has reached its downstream'
  )
  const twice = answered.filter((taskNo, i) => downstream.count(taskNo) > 1 + timeouts(ends[i]?.body)).length
  t.ok(
    twice < tasks / 4,
    `duplicates come from the two kills, and from timeouts that are on record: ${twice}`
  )
  t.equal((await service.kill('SIGTERM')).code, 0, 'it ends politely')
}

/** Attempts that ended in a timeout: on a busy machine they occur. */
function timeouts(body: Answer['body'] | undefined): number {
  const deliveries = (body?.['deliveries'] ?? []) as { attempts: { reason?: string }[] }[]
  return deliveries.flatMap(one => one.attempts).filter(({ reason }) => /timeout/.test(reason ?? '')).length
}
