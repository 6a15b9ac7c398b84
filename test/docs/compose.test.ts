// The compose file of a clone and the one that `ackbox init` writes.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'

const root = path.resolve(import.meta.dirname, '../../..')
const files = ['docker-compose.yml', 'examples/project/compose.yml']
const texts = files.map(file => readFileSync(path.join(root, file), 'utf8'))

t.test('no compose file brings a password, and each port that it publishes can be set', async t => {
  for (const [n, text] of texts.entries()) {
    const file = files[n] ?? ''
    t.match(text, /POSTGRES_PASSWORD: \$\{POSTGRES_PASSWORD:\?/, file)
    t.notMatch(text, /:ackbox@|PASSWORD:-|PASSWORD: \w/, file)
    const ports = [...text.matchAll(/ports: \['([^']+)'\]/g)].map(([, port]) => port)
    t.ok(ports.length > 0)
    for (const port of ports) t.match(port, /^127\.0\.0\.1:\$\{[A-Z]+(?:_PORT)?:-\d+\}:\d+$/, file)
  }
})

t.test('both compose files run the same servers in the same way', async t => {
  for (const shared of [
    /image: (postgres|redis):\S+/g,
    /command: \[redis-server.*/g,
    /volumes: \['(postgres|redis):.*/g
  ])
    t.same(...(texts.map(text => text.match(shared)?.toSorted()) as [unknown, unknown]))
  for (const text of texts) t.match(text, /env_file: \.env\n/)
})
