// ackbox consumer: what the database of a receiver needs.
import { parseArgs } from 'node:util'
import { ddl } from '../consumer/ddl.ts'
import { commandLine } from '../runtime/package.ts'

export const help = `${commandLine('consumer --print-ddl postgres|mysql')}

Prints the tables that a receiver with ackbox/consumer has in its own database: ackbox_received, with a row for each delivery that was handled, and
ackbox_receipt_outbox, with the receipts that are still to be sent. It can be run again.

  --print-ddl KIND    for postgres, or mysql (which MariaDB takes too)
  --help

Exit: 0 printed · 1 wrong options`

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({ args, options: { 'print-ddl': { type: 'string' } } })
  const kind = values['print-ddl']
  if (kind === 'postgres' || kind === 'mysql') return console.log(ddl[kind])
  console.error(`ackbox consumer: --print-ddl must be postgres or mysql\n\n${help}`)
  process.exitCode = 1
}
