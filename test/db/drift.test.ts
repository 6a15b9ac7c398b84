import { readdirSync, readFileSync } from 'node:fs'
import { generateDrizzleJson } from 'drizzle-kit/api'
import t from 'tap'
import * as schema from '../../src/db/schema.ts'

// tap runs the tests in the folder of package.json
const meta = 'src/db/migrations/meta'

// Neither side has fillfactor and triggers, which are written by hand. JSON drops the undefined values.
const tablesOf = (json: string) => ({ ...(JSON.parse(json) as { tables: object }), id: '', prevId: '' })

t.test(
  'the migrations make what the schema says: if not, run `npx drizzle-kit generate --name <what>`',
  async t => {
    const snapshots = readdirSync(meta).filter(name => name.endsWith('_snapshot.json'))
    const last = tablesOf(readFileSync(`${meta}/${snapshots.toSorted().at(-1)}`, 'utf8'))
    t.ok(Object.keys(last.tables).includes('public.delivery'))
    t.same(tablesOf(JSON.stringify(generateDrizzleJson(schema))), last)
  }
)
