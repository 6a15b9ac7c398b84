// Jobs of another installation, which uses the same Redis with the same prefix.
import t from 'tap'
import { unknownJobs } from '../../src/delivery/unknown-jobs.ts'
import { uuidv7 } from '../../src/domain/ids.ts'
import { counted } from '../support/counted.ts'
import { only } from '../support/only.ts'
import { testDb } from '../support/postgres.ts'
import { setup } from '../support/setup.ts'

const foreign = () => ({ downstream: 'warehouse', deliveries: [{ taskId: uuidv7(), attempt: 1 }] })
const remedy = 'does another Ackbox use this Redis with the same REDIS_PREFIX?'

t.test('a worker that reads a job of another installation says so', async t => {
  const { deliver, logged, quiet } = await setup(t)
  await deliver(foreign())
  await quiet()
  t.match(logged('job.unknown'), only({ level: 'warn', downstream: 'warehouse', remedy }))
})

t.test('a job that is only late is none, whatever has become of its task', async t => {
  const { sql, log, post, quiet, queue, read, remove, logged } = await setup(t)
  queue.mode = 'hold'
  const [handled, deleted] = [await post(), await post()]
  await quiet()
  const jobs = queue.jobs.map(job => ({
    downstream: 'warehouse',
    deliveries: job.map(({ taskId, attempt }) => ({ taskId, attempt }))
  }))
  t.equal(jobs.length, 2)
  await remove(deleted)
  await queue.run()
  await quiet()
  t.equal((await read(handled)).status, 'HANDLED')
  t.equal((await read(deleted)).status, 'DELETED')
  for (const job of jobs) await unknownJobs({ sql, log })(job)
  t.same(logged('job.unknown'), [])
})

t.test('it is asked once in 10 s, and said the first and the tenth time', async t => {
  const { sql, statements } = counted((await testDb(t)).sql)
  let clock = 0
  const said: number[] = []
  const look = unknownJobs({ sql, log: { warn: () => said.push(clock) } }, () => clock)
  for (; clock < 120_000; clock += 2_000) await look(foreign())
  t.equal(statements(), 12)
  t.same(said, [0, 90_000])
})
