// ackbox import: copies the open rows of a home-grown message table to tasks.
import { accessSync, closeSync, constants, fchmodSync, openSync, statSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { isInfrastructure } from '../db/pool.ts'
import { messageOf } from '../runtime/errors.ts'
import { commandLine } from '../runtime/package.ts'
import { onStop } from '../runtime/stop.ts'
import { readColumns } from '../relay/columns.ts'
import { importRows, type Imported } from '../relay/import.ts'
import { TargetAway } from '../relay/post.ts'
import { RelayError, type RelayRow } from '../relay/source.ts'
import { withTable, type Snapshot, type TableQuery } from '../relay/table.ts'
import { readArguments, readKey, readTarget, readWhole, SlipError, UsageError } from './arguments.ts'
import { environment, SettingError } from '../service/config.ts'
import { isDecodable, rawPercent } from '../service/addresses.ts'
import { dryRun } from './import/dry-run.ts'
import { explain } from './explain.ts'
import { codeOf } from '../runtime/text-of.ts'

export const help = `${commandLine('import --from URL --table NAME --columns taskNo=…,messageCode=…,messageBody=… --to URL [options]')}

Copies rows of a message table in PostgreSQL, MySQL or MariaDB to tasks. It writes nothing to that database. A row with the taskNo and
content of an existing task creates no second task, so the same command can be run again to continue.

  --from URL       postgres://… or mysql://… (or ACKBOX_IMPORT_FROM: a command line can be read by other users)
  --table NAME     the table, or any other SQL that may follow FROM
  --columns LIST   MEMBER=SQL,… A member of the task, and the SQL expression for its value:
                   taskNo=msg_id,messageCode='order.paid',messageBody=payload,deliverStartTime=next_retry_at
  --where SQL      which rows (default: all), for example "status = 'NEW'"
  --order SQL      the order (default: none). Tasks of one orderingKey keep it
  --dry-run        counts the rows, shows the first three as tasks, and checks all with the handlers of HANDLERS_DIR; posts nothing
  --to URL         address of Ackbox (or ACKBOX_URL)
  --key KEY        API key with the scope tasks:write (or ACKBOX_KEY, or --key-file FILE)
  --rejected FILE  file for refused rows with their problems, one JSON per line (default import-rejected.ndjson; a run that
                   refuses rows replaces it)
  --batch N        maximum rows per request (default 500)
  --help

Exit: 0 every row is a task · 1 stopped by an error, which is printed · 2 all rows were posted, some were refused; with --dry-run, some
would be refused · 130 stopped by Ctrl-C or SIGTERM after the current batch`

const exits = { failed: 1, refused: 2, stopped: 130 }

export const runsHandlers = true

export async function run(args: string[]): Promise<void> {
  try {
    await perform(args)
  } catch (err) {
    if (err instanceof UsageError || err instanceof SettingError) throw err
    console.error(reasonOf(err))
    process.exitCode = exits.failed
  }
}

/** Codes of mysql2 for a connection that is lost or cannot begin. None comes from a statement. */
const isOfConnection = /^(PROTOCOL|HANDSHAKE)_/

function reasonOf(err: unknown): string {
  const message = messageOf(err)
  const code = codeOf(err)
  if (err instanceof RelayError) return message
  if (err instanceof TargetAway) return `ackbox import: ${message}. Run the same command again to go on.`
  if (isInfrastructure(err) || isOfConnection.test(code ?? ''))
    return `ackbox import: the database of --from cannot be used (${message.trim() || code}): check the URL, and that the server is up`
  // Drivers add one of these members to the error of a statement that the server refused.
  if (typeof err === 'object' && err !== null && ('severity' in err || 'sqlState' in err))
    return `ackbox import: the database of --from refuses the query: ${message}`
  return explain(err)
}

async function perform(args: string[]): Promise<void> {
  const options = read(args)
  const stop = new AbortController()
  onStop(() => (stop.signal.aborted ? process.exit(exits.stopped) : stop.abort()))
  const allFine = await withTable(
    options.from,
    options.query,
    async snapshot =>
      options.isDryRun
        ? await dryRun(snapshot, options.query.table, stop.signal)
        : await copy(snapshot, options, stop.signal),
    stop.signal
  )
  if (stop.signal.aborted) process.exitCode = exits.stopped
  else if (!allFine) process.exitCode = exits.refused
}

/** Returns true if every row was accepted. Prints the counts even when it throws. */
async function copy(snapshot: Snapshot, options: Options, signal: AbortSignal): Promise<boolean> {
  const file = rejectedFile(options.rejected)
  const line = progress(snapshot.count)
  let sum: Imported = { created: 0, known: 0, rejected: 0 }
  let ended = 'ended early'
  try {
    await importRows(
      {
        target: { url: options.to, key: options.key, timeoutMs: 30_000 },
        reject: file.add,
        onBatch(now) {
          sum = { ...now }
          line.show(sum)
        },
        onAway: reason => console.error(`ackbox import: ${reason}. Trying again.`),
        patienceMs: 60_000
      },
      snapshot.batches,
      signal
    )
    ended = signal.aborted ? 'stopped' : 'done'
  } finally {
    line.end()
    file.close()
    console.log(`${counts(sum, snapshot.count)} · ${ended}`)
    if (sum.rejected > 0) console.log(`Rejected rows, with their problems: ${options.rejected}`)
    if (ended === 'stopped') console.log('Run the same command again to go on.')
  }
  return sum.rejected === 0
}

const number = (value: number): string => value.toLocaleString('en')
const counts = ({ created, known, rejected }: Imported, all: number): string =>
  `${number(created + known + rejected)} of ${number(all)} rows: ${number(created)} new, ${number(known)} already there, ${number(rejected)} rejected`

const lineEveryMs = 10_000

/** Updates one line on a terminal. Elsewhere it prints a new line every 10 s. */
function progress(all: number): { show(sum: Imported): void; end(): void } {
  const begun = performance.now()
  const { isTTY } = process.stderr
  let sum: Imported = { created: 0, known: 0, rejected: 0 }
  const line = (): string => {
    const perSecond = (sum.created + sum.known + sum.rejected) / ((performance.now() - begun) / 1_000)
    return `${counts(sum, all)}, ${number(Math.round(perSecond))} a second`
  }
  const timer = isTTY ? undefined : setInterval(() => process.stderr.write(`${line()}\n`), lineEveryMs)
  return {
    show(now) {
      sum = now
      if (isTTY) process.stderr.write(`\r${line()} `)
    },
    end() {
      clearInterval(timer)
      if (isTTY) process.stderr.write('\n')
    }
  }
}

/** Created for the first rejected row. Only its owner can read it, because it contains bodies. */
function rejectedFile(path: string): { add(row: RelayRow, problem: string): void; close(): void } {
  let file: number | undefined
  return {
    add(row, problem) {
      const members = Object.fromEntries(
        Object.entries(row).filter(([name, value]) => name !== 'id' && name !== 'problem' && value !== null)
      )
      try {
        if (file === undefined) {
          file = openSync(path, 'w', 0o600)
          fchmodSync(file, 0o600) // the file may be older
        }
        writeFileSync(file, `${JSON.stringify({ row: members, problem: readProblem(problem) })}\n`)
      } catch (err) {
        throw new RelayError(unwritable(path, err), { cause: err })
      }
    },
    close: () => file !== undefined && closeSync(file)
  }
}

/** The problem can be text of a proxy instead of JSON. */
function readProblem(problem: string): unknown {
  try {
    return JSON.parse(problem)
  } catch {
    return problem
  }
}

interface Options {
  from: string
  query: TableQuery
  to: string
  key: string | undefined
  rejected: string
  isDryRun: boolean
}

function read(args: string[]): Options {
  const env = environment()
  const { values } = readArguments({
    args,
    options: {
      from: { type: 'string', default: env['ACKBOX_IMPORT_FROM'] ?? '' },
      table: { type: 'string', default: '' },
      columns: { type: 'string', default: '' },
      where: { type: 'string' },
      order: { type: 'string' },
      'dry-run': { type: 'boolean', default: false },
      to: { type: 'string' },
      key: { type: 'string' },
      'key-file': { type: 'string' },
      rejected: { type: 'string', default: 'import-rejected.ndjson' },
      batch: { type: 'string', default: '500' }
    }
  })
  const needs = (given: string, option: string): void => {
    if (given === '') throw new SlipError(`Missing option: ${option}`)
  }
  needs(values.from, '--from URL')
  needs(values.table, '--table NAME')
  needs(values.columns, '--columns taskNo=…,messageCode=…,messageBody=…')
  const to = values['dry-run'] ? '' : readTarget(values.to, env)
  const batch = readWhole('--batch', values.batch, 1_000)
  if (!isDecodable(values.from)) throw new UsageError(`--from ${rawPercent}`)
  if (!values['dry-run']) checkRejected(values.rejected)
  return {
    from: values.from,
    query: {
      table: values.table,
      columns: readColumns(values.columns),
      where: values.where,
      order: values.order,
      batch
    },
    to,
    key: readKey(values, env),
    rejected: values.rejected,
    isDryRun: values['dry-run']
  }
}

/** Checks the file before the import, although only the first rejected row creates it. */
function checkRejected(path: string): void {
  try {
    const isThere = statSync(path, { throwIfNoEntry: false })
    if (isThere?.isDirectory()) throw new Error('it is a folder')
    accessSync(isThere ? path : dirname(path), constants.W_OK)
  } catch (err) {
    throw new UsageError(unwritable(path, err))
  }
}

const unwritable = (path: string, err: unknown): string =>
  `--rejected ${path} cannot be written: ${messageOf(err)}`
