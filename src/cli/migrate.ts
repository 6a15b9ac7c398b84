// ackbox migrate: applies the missing migrations. It may run again, and twice at the same time.
import { parseArgs } from 'node:util'
import { environment, readFailpoints } from '../service/config.ts'
import { migrate } from '../db/migrate.ts'
import { armFailpoints } from '../runtime/failpoint.ts'

export const help = `ackbox migrate    applies the missing migrations to the database of DATABASE_URL. It is safe to run again`

export async function run(args: string[]): Promise<void> {
  parseArgs({ args })
  const url = environment()['DATABASE_URL']
  if (!url) {
    console.error('ackbox: set DATABASE_URL. The embedded PostgreSQL is migrated at each start')
    process.exitCode = 1
    return
  }
  try {
    const failpoints = readFailpoints(process.env['FAILPOINTS'], process.env)
    if (typeof failpoints === 'string') throw new Error(`FAILPOINTS ${failpoints}`)
    armFailpoints(failpoints)
    if (failpoints.size > 0)
      console.error(`FAILPOINTS is set. This command breaks at: ${[...failpoints.keys()].join(', ')}`)
    const applied = await migrate(url)
    console.log(
      applied.length > 0 ? `applied ${applied.join(', ')}` : 'nothing to do: all migrations are applied'
    )
  } catch (err) {
    console.error(
      `ackbox: the migration failed (${err instanceof Error ? err.message : String(err)}): fix the cause and run it again`
    )
    process.exitCode = 1
  }
}
