// The example of examples/open-platform, with a real Dubbo provider and a real Kafka.
import t from 'tap'
import { holds, killed } from '../support/example.ts'
import { without } from '../support/program.ts'
import { buildExamples } from './java.ts'

t.setTimeout(2_400_000)

t.test(
  'a material reaches each of its four partners once and all agree, whichever program is killed',
  { skip: without('java', 'mvn') },
  async t => {
    await buildExamples()
    const lines = await holds(t, 'open-platform', '--count', '24', '--kill', '8')
    const once = { ackbox: 1, relay: 1, platform: 1, review: 1, search: 1, library: 1, feed: 1, kafka: 1 }
    t.same(killed(lines), once)
    t.ok(lines.some(line => line.endsWith('24 materials; shown: review 24, search 24, library 24, feed 24')))
    t.ok(lines.some(line => line.endsWith('search has lost 3; reconcile names 3, which are delivered again')))
  }
)
