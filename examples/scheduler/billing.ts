// The job: at each tick every account pays its fee. It runs in one transaction with the row that marks this delivery as handled.
import { createServer } from 'node:http'
import postgres from 'postgres'
import { receiver } from 'ackbox/consumer'

const { DATABASE_URL = '', SIGNING_SECRET = '', ACKBOX_URL = '', PORT = '' } = process.env
const sql = postgres(DATABASE_URL, { max: 5 })
const jobs = receiver({ secrets: [SIGNING_SECRET], db: sql, consumer: 'billing', url: ACKBOX_URL })

const server = createServer(
  jobs.node(async (tx, task) => {
    const { tick } = task.body as { tick: string }
    // The table has no unique key, so a second run of the same tick is detected.
    await tx`insert into run (tick) values (${tick})`
    await tx`update account set charged = charged + fee`
  })
)
server.listen(Number(PORT), '127.0.0.1', () => console.log(`billing is ready on ${PORT}`))
await jobs.run()
