// The open platform: it stores a material, and in the same transaction the task that tells its partners.
import { createServer } from 'node:http'
import postgres from 'postgres'
import { outbox } from 'ackbox/producer'

const { DATABASE_URL = '', PORT = '' } = process.env
const sql = postgres(DATABASE_URL, { max: 5 })

/** A repeat has no effect: the author repeats a request that was not answered. */
async function publish(material: number): Promise<void> {
  const title = `Material ${material}, 素材`
  await sql.begin(async tx => {
    const taken = await tx`
      insert into material (id, title) values (${material}, ${title}) on conflict do nothing returning id`
    if (taken.length === 0) return
    await outbox(tx, {
      taskNo: `material-${material}`,
      messageCode: 'material.published',
      messageBody: { material, title }
    })
  })
}

const server = createServer((request, response) => {
  const [, material] = /^\/materials\/(\d+)$/.exec(request.url ?? '') ?? []
  if (material === undefined) return void response.writeHead(404).end()
  publish(Number(material)).then(
    () => response.writeHead(200, { 'content-type': 'application/json' }).end('{"published":true}'),
    (err: unknown) => {
      console.error(err)
      response.writeHead(500).end()
    }
  )
})
server.listen(Number(PORT), '127.0.0.1', () => console.log(`platform is ready on ${PORT}`))
