// ackbox archive: tasks that retention removed, in the files of ARCHIVE.
import { statusWord } from '../domain/types.ts'
import { restoreTask } from '../db/archive.ts'
import { commandLine } from '../runtime/package.ts'
import { findArchived, type Found } from '../service/archive.ts'
import { environment, readConfig, type Config } from '../service/config.ts'
import { printable, readArguments, readVerb, refuseSurplus, SlipError, UsageError } from './arguments.ts'
import { who, withDatabase } from './database.ts'
import { codeOf, isError } from '../runtime/text-of.ts'

export const help = `${commandLine('archive find TASKNO')} [--day 2026-10-24] [--json]
${commandLine('archive restore TASKNO')} [--day 2026-10-24] [--id ID]

find shows what the files of ARCHIVE hold of a task: deliveries, attempts and receipts.
restore puts it back into the tables. It is refused while a task with this taskNo exists. Retention leaves a restored
task alone for RETENTION_DAYS. Nothing is sent; redeliver it to send it again. Its alarms and its place in an order do
not come back.
  --day DAY   only files of tasks that were posted on this day (UTC); without it all files are read
  --id ID     which one, if the taskNo was used several times (default: the newest)
  --json      prints the archived lines as they are
Exit: 0 done · 1 not found, or refused`

const options = { day: { type: 'string' }, id: { type: 'string' }, json: { type: 'boolean' } } as const

export async function run(args: string[]): Promise<void> {
  const { positionals, values, given } = readArguments({ args, options, allowPositionals: true })
  const [first, ...words] = positionals
  const verb = readVerb(first, ['find', 'restore'])
  const [taskNo] = words
  const own = verb === 'find' ? ['day', 'json'] : ['day', 'id']
  refuseSurplus(`archive ${verb}`, { words: ['TASKNO'], options: own }, { words, given })
  if (taskNo === undefined) throw new SlipError(`The taskNo is missing.`)
  if (values.day !== undefined && !isDay(values.day)) throw new UsageError('--day must be like 2026-10-24')
  const config = readConfig(environment())
  const found = await look(config, taskNo, values.day)
  if (verb === 'restore') await restore(config, taskNo, found, values.id)
  else for (const one of found) console.log(values.json ? one.line : shown(one))
}

/** True: a day of the calendar. `2026-13-45` is refused here, because it would only find nothing. */
function isDay(text: string): boolean {
  const at = /^\d{4,}-\d\d-\d\d$/.test(text) ? Date.parse(text) : Number.NaN
  return !Number.isNaN(at) && new Date(at).toISOString().startsWith(text)
}

async function look({ archiveDir }: Config, taskNo: string, day: string | undefined): Promise<Found[]> {
  if (archiveDir === undefined)
    throw new UsageError('ARCHIVE is not set. Set it to the value that the service uses.')
  const onTorn = (file: string): void =>
    console.error(`${file} is cut off at its end, by a kill or by a copy. The tasks before that were read.`)
  const found = await findArchived(archiveDir, taskNo, { day, onTorn }).catch((err: unknown) => {
    if (isError(err) && ['ENOENT', 'EACCES', 'ENOTDIR'].includes(codeOf(err) ?? ''))
      throw new UsageError(`The archive cannot be read: ${err.message}`)
    throw err
  })
  if (found.length === 0)
    throw new UsageError(`${taskNo} is not in the archive${day === undefined ? '' : ` of ${day}`}.`)
  return found
}

async function restore(
  config: Config,
  taskNo: string,
  found: readonly Found[],
  id: string | undefined
): Promise<void> {
  const copy = id === undefined ? found[0] : found.find(({ archived }) => archived.task.id === id)
  if (!copy) {
    const ids = found.map(({ archived }) => archived.task.id)
    throw new UsageError(`No archived ${taskNo} has the id ${id}. The ids are ${ids.join(', ')}`)
  }
  await withDatabase(config, async sql => {
    if (!(await restoreTask(sql, copy.line, who())))
      throw new UsageError(
        `${taskNo} exists, or another task has its business key: nothing was restored. \`${commandLine(`archive find ${taskNo}`)}\` shows the archived one.`
      )
  })
  console.log(`${taskNo} is back. Retention leaves it alone for ${config.retentionDays} days.`)
}

function shown({ file, archived }: Found): string {
  const { task, deliveries, attempts, receipts, archivedAt } = archived
  const text = (value: unknown): string =>
    typeof value === 'string' ? value : JSON.stringify(value ?? '').replace(/^""$/, '')
  const lines = [
    `${task.task_no}  ${text(task['message_code'])}  posted ${task.created_at}  archived ${archivedAt}`,
    `  id ${task.id}`,
    `  in ${file}`,
    `  body ${text(task['message_body'])}`
  ]
  for (const delivery of deliveries) {
    const status = statusWord(Number(delivery['status']))
    lines.push(`  ${text(delivery['downstream'])}  ${status}  ${text(delivery['reason'])}`.trimEnd())
    const of = (row: { [column: string]: unknown }) => row['downstream'] === delivery['downstream']
    for (const row of attempts.filter(of))
      lines.push(
        `    attempt ${text(row['attempt'])}  ${text(row['started_at'])}  ${text(row['outcome'])}  ${text(row['status_code'] ?? row['reason'])}`
      )
    for (const row of receipts.filter(of))
      lines.push(
        `    receipt ${text(row['created_at'])}  ${text(row['result'])}  ${text(row['reason'])}`.trimEnd()
      )
  }
  return lines.map(printable).join('\n')
}
