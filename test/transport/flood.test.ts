// The cost of a broker that floods, measured on a separate process, which must survive.
// Takes long: npm run test:long.
import t from 'tap'
import { flooded } from './flooded-process.ts'
import { floods } from './floods.ts'
import { scriptedServer } from './scripted-server.ts'

t.setTimeout(2_400_000)

const timeoutMs = 1_500

for (const [reader, name, script] of floods) {
  t.test(`${reader}: ${name} costs less than 128 MB and ends no process`, async t => {
    const server = await scriptedServer(t, script)
    const child = await flooded(t, reader, server.port)
    const { outcome } = await child.bears(timeoutMs)
    if (!reader.startsWith('reply')) t.match(outcome, { kind: /failed|delivered/ })
  })
}
