// ackbox outbox: lets a role of PostgreSQL enqueue tasks inside its own transactions.
import { environment, readConfig } from '../service/config.ts'
import { openSchemasFor } from '../db/foreign-code.ts'
import { grantOutbox } from '../db/outbox.ts'
import { commandLine } from '../runtime/package.ts'
import { readArguments, readVerb, refuseSurplus, UsageError } from './arguments.ts'
import { who, withDatabase } from './database.ts'

export const help = `${commandLine('outbox grant ROLE [--trusted]')}

Lets ROLE call ackbox_api.enqueue and ackbox_api.enqueue_many, and nothing else: ROLE cannot read or write tables of Ackbox.
ROLE may enqueue tasks of every messageCode. To revoke it:
revoke all on all functions in schema ackbox_api from ROLE; revoke usage on schema ackbox_api from ROLE;
A role that may create objects in the schema of our tables is refused: statements of Ackbox could run its functions and operators.

  --trusted   grants it all the same: such a role can do whatever Ackbox may do in its database
  --help

The command uses the database of DATABASE_URL, or the embedded one.
Exit: 0 done · 1 an error, which is printed`

export async function run(args: string[]): Promise<void> {
  const { positionals, values } = readArguments({
    args,
    allowPositionals: true,
    options: { trusted: { type: 'boolean', default: false } }
  })
  const [verb, ...words] = positionals
  const [role = ''] = words
  readVerb(verb, ['grant'])
  refuseSurplus('outbox grant', { words: ['ROLE'], options: [] }, { words, given: [] })
  if (role === '') throw new UsageError(`Missing ROLE: ${commandLine('outbox grant ROLE')}`)
  await withDatabase(readConfig(environment()), async sql => {
    const open = values.trusted ? [] : await openSchemasFor(sql, role)
    if (open.length > 0)
      throw new UsageError(
        `${role} may create functions and operators where statements of Ackbox look for them, and so can do whatever Ackbox may. Forbid it: ${open.join(' ')} Or grant with --trusted.`
      )
    if (!(await grantOutbox(sql, { role, who: who() })))
      throw new UsageError(
        `The role ${role} does not exist in this PostgreSQL: create role "${role.replaceAll('"', '""')}" login;`
      )
  })
  console.log(`${role} may call ackbox_api.enqueue and ackbox_api.enqueue_many.`)
}
