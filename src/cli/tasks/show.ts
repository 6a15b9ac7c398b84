// What `ackbox tasks` prints of the answers of the API.
import type { TaskView } from '../../db/views.ts'
import { printable } from '../arguments.ts'

export interface TaskPage {
  tasks: TaskView[]
  nextCursor?: string
  partial?: true
}

export interface Operation {
  id: string
  state: string
  matched: number | string
  redelivered: number
  skipped: number
  deliveries?: Record<string, number>
}

/** The most characters of an answer. GET /tasks/{taskNo} returns all that is stored. */
const mostShown = 200

export function showTasks({ tasks, nextCursor, partial }: TaskPage): void {
  for (const { taskNo, messageCode, status, createdAt, deliveries } of tasks) {
    const parts = deliveries.map(
      one =>
        `${one.downstream} ${one.phase ?? one.status} #${one.attempt}${one.lastReason ? ` (${printable(one.lastReason)})` : ''}`
    )
    console.log(`${createdAt}  ${status.padEnd(9)}  ${taskNo}  ${messageCode}  ${parts.join(', ')}`)
  }
  if (nextCursor === undefined) {
    if (tasks.length === 0) console.log('No task matches.')
  } else if (partial)
    console.log(`Not all tasks were read: go on with --cursor ${nextCursor}, or narrow --from and --to.`)
  else
    console.log(
      `More tasks match: go on with --cursor ${nextCursor}, raise --limit (at most 200), or narrow the filters.`
    )
}

export function showTask({ taskNo, messageCode, status, createdAt, deliveries }: TaskView): void {
  console.log(`${taskNo}  ${messageCode}  ${status}  created ${createdAt}`)
  for (const one of deliveries) {
    const words = [
      one.phase ?? '',
      one.reason ?? '',
      one.nextActionAt === undefined ? '' : `next ${one.nextActionAt}`,
      one.updatedBy === undefined ? '' : `by ${one.updatedBy}`
    ]
    console.log(`  ${one.downstream}  ${one.status}  ${words.filter(Boolean).join('  ')}`)
    if (one.waitingFor) console.log(`    ${printable(one.waitingFor.text.en)}`)
    if (one.attemptsTotal !== undefined)
      console.log(`    the newest ${one.attempts?.length} of ${one.attemptsTotal} attempts`)
    for (const { attempt, outcome, status: code, reason, answer, ms, startedAt } of one.attempts ?? []) {
      console.log(
        `    #${attempt}  ${startedAt}  ${outcome}  ${code ?? ''}  ${printable(reason ?? '')}  ${ms} ms`
      )
      if (outcome !== 'delivered' && answer) console.log(`      ${printable(answer.slice(0, mostShown))}`)
    }
    if (one.receiptsTotal !== undefined)
      console.log(`    the newest ${one.receipts?.length} of ${one.receiptsTotal} receipts`)
    for (const { attempt, result, reason, createdAt: at } of one.receipts ?? [])
      console.log(`    receipt of #${attempt}  ${at}  ${result}  ${printable(reason ?? '')}`)
  }
}

export function showOperation({
  id,
  state,
  matched,
  redelivered,
  skipped,
  deliveries = {}
}: Operation): void {
  const gone = state === 'DONE' && typeof matched === 'number' ? matched - redelivered - skipped : 0
  const now = Object.entries(deliveries).map(([status, count]) => `${count} ${status}`)
  console.log(
    `Operation ${id} is ${state}: ${redelivered} redelivered, ${skipped} skipped; now ${now.join(', ') || 'none'}`
  )
  if (gone > 0) console.log(`${gone} were no longer FAILED when their turn came`)
}
