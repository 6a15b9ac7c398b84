import t from 'tap'
import { dataFolder } from '../support/cluster.ts'
import { common, survives } from '../service/crash.ts'

t.setTimeout(2_400_000)

t.test(
  'kill -9 in the middle of 2,000 POSTs with receipts loses nothing, on the embedded PostgreSQL alone',
  async t => {
    const dataDir = await dataFolder(t)
    await survives(t, (downstream, port) => ({ ...common(downstream, port), DATA_DIR: dataDir }))
  }
)
