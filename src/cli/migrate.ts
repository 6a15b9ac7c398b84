// ackbox migrate: brings the tables of DATABASE_URL up to date; may be run again, and twice at once.
import { parseArgs } from 'node:util'
import { environment, readFailpoints } from '../service/config.ts'
import { migrate } from '../db/migrate.ts'
import { armFailpoints } from '../runtime/failpoint.ts'

export const help = `ackbox migrate    applies what is missing to the database of DATABASE_URL; safe to run again`

export async function run(args: string[]): Promise<void> {
  parseArgs({ args })
  const url = environment()['DATABASE_URL']
  if (!url) {
    console.error('ackbox: set DATABASE_URL; an embedded PostgreSQL is migrated at start')
    process.exitCode = 1
    return
  }
  try {
    const failpoints = readFailpoints(process.env['FAILPOINTS'], process.env)
    if (typeof failpoints === 'string') throw new Error(`FAILPOINTS ${failpoints}`)
    armFailpoints(failpoints)
    if (failpoints.size > 0)
      console.error(`FAILPOINTS is set: this breaks at ${[...failpoints.keys()].join(', ')}`)
    const applied = await migrate(url)
    console.log(
      applied.length > 0 ? `applied ${applied.join(', ')}` : 'nothing to do: the tables are up to date'
    )
  } catch (err) {
    console.error(
      `ackbox: the migration did not end (${err instanceof Error ? err.message : String(err)}): mend it and run this again`
    )
    process.exitCode = 1
  }
}
