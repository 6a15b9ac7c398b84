// ackbox consumer: prints the tables for the database of a receiver.
import { ddl } from '../consumer/ddl.ts'
import { readArguments, SlipError } from './arguments.ts'
import { commandLine } from '../runtime/package.ts'

export const help = `${commandLine('consumer --print-ddl postgres|mysql')}

Prints the tables for the own database of a receiver that uses ackbox/consumer: ackbox_received, with a row for each handled delivery, and
ackbox_receipt_outbox, with the receipts not sent yet. The SQL can be run again.

  --print-ddl KIND    postgres, or mysql (also for MariaDB)
  --help

Exit: 0 printed · 1 wrong options`

export async function run(args: string[]): Promise<void> {
  const { values } = readArguments({ args, options: { 'print-ddl': { type: 'string' } } })
  const kind = values['print-ddl']
  if (kind === 'postgres' || kind === 'mysql') return console.log(ddl[kind])
  throw new SlipError('--print-ddl must be postgres or mysql')
}
