// ackbox migrate: applies the missing migrations. It may run again, and twice at the same time.
import { environment, readDatabaseUrl, readFailpoints, SettingError } from '../service/config.ts'
import { migrate } from '../db/migrate.ts'
import { checkDatabase, isInfrastructure, DatabaseError } from '../db/pool.ts'
import { armFailpoints } from '../runtime/failpoint.ts'
import { readArguments } from './arguments.ts'
import { explain } from './explain.ts'
import { messageOf } from '../runtime/errors.ts'

export const help = `ackbox migrate    applies the missing migrations to the database of DATABASE_URL. It is safe to run again`

export async function run(args: string[]): Promise<void> {
  readArguments({ args })
  try {
    const env = environment()
    const url = readDatabaseUrl(env)
    if (url === undefined)
      throw new SettingError('set DATABASE_URL; an embedded PostgreSQL is migrated at start')
    const failpoints = readFailpoints(env['FAILPOINTS'], env)
    if (typeof failpoints === 'string') throw new SettingError(`FAILPOINTS ${failpoints}`)
    armFailpoints(failpoints)
    if (failpoints.size > 0)
      console.error(`FAILPOINTS is set: this command breaks at ${[...failpoints.keys()].join(', ')}`)
    await checkDatabase(url)
    const applied = await migrate(url)
    console.log(
      applied.length > 0 ? `applied ${applied.join(', ')}` : 'nothing to do: all migrations are applied'
    )
  } catch (err) {
    const isKnown = err instanceof SettingError || err instanceof DatabaseError || isInfrastructure(err)
    // An error of a migration's statement: its message says more than our stack.
    console.error(
      isKnown ? explain(err) : `ackbox: Migration failed: ${messageOf(err)}. Fix the cause and run it again.`
    )
    process.exitCode = 1
  }
}
