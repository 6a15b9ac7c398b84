// node holder.js <dataDir>: an Ackbox that runs only its embedded PostgreSQL, for tests that kill it. At SIGINT it drains as
// the service does: it uses the database once more, then stops it.
import { startEmbedded } from '../../src/embedded/start.ts'
import { openDb } from '../../src/db/pool.ts'

const say = (fields: object) => process.stdout.write(JSON.stringify(fields) + '\n')

try {
  const embedded = await startEmbedded({ dataDir: process.argv[2] ?? '' })
  const sql = openDb(embedded.url, { max: 1 })
  await sql`create table if not exists note (text text)`
  await sql`insert into note values (${`from ${process.pid}`})`
  process.once('SIGINT', () => {
    void (async () => {
      const [row] = await sql`select count(*) as notes from note`
      await sql.end()
      await embedded.stop()
      say({ drained: row?.['notes'] })
      process.exit(0)
    })()
  })
  say({ pid: embedded.pid, port: embedded.port, url: embedded.url })
  setInterval(() => {}, 60_000)
} catch (err) {
  say({ error: err instanceof Error ? `${err.name}: ${err.message}` : String(err) })
  process.exit(1)
}
