// A receiver, written with ackbox/consumer as a user would. It dies at the critical places: between the commit and the answer, before the
// commit, and between a receipt and the record that it was sent.
import { existsSync, writeSync } from 'node:fs'
import { createServer } from 'node:http'
import mysql from 'mysql2/promise'
import pg from 'pg'
import { fromMysql2, fromPg, receiver, type Database } from '../../src/consumer/consumer.ts'
import { chance } from '../random.ts'
import { secretVariable } from '../terms.ts'
import { deathChance, faultsFile, lateMs, promptDeadlineMs, type Place } from './terms.ts'

const { DATABASE = '', PORT = '', SEED = '0', LAUNCH = '0' } = process.env
const random = chance(Number(SEED), `receiver ${DATABASE} ${PORT} ${LAUNCH}`)
const isPostgres = DATABASE.startsWith('postgres')

/** No code can catch this signal. */
function die(place: Place): void {
  if (!random.hit(deathChance[place]) || !existsSync(faultsFile)) return
  writeSync(1, `died ${place}\n`)
  process.kill(process.pid, 'SIGKILL')
}

const opened = isPostgres
  ? fromPg(new pg.Pool({ connectionString: DATABASE, max: 20 }))
  : fromMysql2(mysql.createPool({ uri: DATABASE, connectionLimit: 20 }))
const plain = opened as Database<unknown>
const db: Database<unknown> = {
  ...plain,
  async begin(work) {
    const result = await plain.begin(async native => {
      const worked = await work(native)
      die('before-commit')
      return worked
    })
    die('after-commit')
    return result
  }
}
const send = globalThis.fetch
globalThis.fetch = async (...args) => {
  const answer = await send(...args)
  die('after-receipt')
  return answer
}

const options = { secrets: [process.env[secretVariable] ?? ''], db, onError: () => {} }
const kinds = {
  prompt: receiver({ ...options, consumer: 'prompt' }),
  late: receiver({ ...options, consumer: 'late', deadlineMs: promptDeadlineMs })
}
const statement = (native: unknown, text: string) =>
  (native as { query(text: string): Promise<unknown> }).query(text)
const grant = (kind: string) => async (native: unknown, task: { body: unknown }) => {
  const { points } = task.body as { points: number }
  if (!Number.isInteger(points)) throw new Error('no points')
  // Enough rows that the receivers do not only wait for each other.
  await statement(
    native,
    `update points set granted = granted + ${points} where kind = '${kind}' and shard = ${points % 16}`
  )
  if (kind === 'late')
    await statement(
      native,
      isPostgres ? `select pg_sleep(${lateMs / 1_000})` : `select sleep(${lateMs / 1_000})`
    )
  return { granted: points }
}
const handlers = { '/prompt': kinds.prompt.node(grant('prompt')), '/late': kinds.late.node(grant('late')) }

const server = createServer((request, response) => {
  const handle = handlers[request.url as keyof typeof handlers]
  if (handle) handle(request, response)
  else response.writeHead(404).end()
})
server.listen(Number(PORT), '127.0.0.1')
process.on('disconnect', () => process.exit(0))
await Promise.all(Object.values(kinds).map(one => one.run({ pollMs: 200 })))
