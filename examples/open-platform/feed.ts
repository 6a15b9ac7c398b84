// The feed: a Kafka consumer. It shows each material once, although a record may arrive twice.
import { setTimeout as sleep } from 'node:timers/promises'
import { Consumer } from '@platformatic/kafka'
import postgres from 'postgres'
import { InvalidSignature, receiver, TooOld } from 'ackbox/consumer'

const { DATABASE_URL = '', SIGNING_SECRET = '', KAFKA = '' } = process.env
const sql = postgres(DATABASE_URL, { max: 5 })
const feed = receiver({ secrets: [SIGNING_SECRET], db: sql, consumer: 'feed' })

async function consume(): Promise<void> {
  const consumer = new Consumer({
    clientId: 'feed',
    groupId: 'feed',
    bootstrapBrokers: [KAFKA],
    // The time that the group waits for a member that was killed.
    sessionTimeout: 6_000,
    heartbeatInterval: 1_000
  })
  consumer.on('error' as never, () => {})
  try {
    const stream = await consumer.consume({
      topics: ['materials'],
      mode: 'committed',
      fallbackMode: 'earliest',
      autocommit: false
    })
    for await (const message of stream) {
      try {
        await sql.begin(tx =>
          feed.once(tx, message, async task => {
            const { material, title } = task.body as { material: number; title: string }
            await tx`insert into shown (task_no, material, title) values (${task.taskNo}, ${material}, ${title})`
          })
        )
      } catch (err) {
        // This record can never be accepted. It is skipped, or it would hold back all records after it.
        if (!(err instanceof InvalidSignature || err instanceof TooOld)) throw err
        console.error(err.message)
      }
      // After the commit: a record whose offset was not written arrives again, as a repeat.
      await message.commit()
    }
  } finally {
    await new Promise<void>(resolve => consumer.close(true, () => resolve()))
  }
}

console.log(`feed is ready, of ${KAFKA}`)
// The client's stream ends when its broker ends: then a new consumer starts.
for (;;) {
  await consume().catch((err: unknown) => console.error(err instanceof Error ? err.message : err))
  await sleep(500)
}
