import { taskText } from '../../relay/post.ts'
import type { Snapshot } from '../../relay/table.ts'
import { environment, readConfig } from '../../service/config.ts'
import { counted } from '../arguments.ts'
import { readHandlers } from '../read-handlers.ts'
import { refusalOf, type Refusal } from '../task-refusal.ts'

const shown = 3

/** Prints the results that an import would have, and posts nothing. Returns true if every row would be accepted. */
export async function dryRun(snapshot: Snapshot, table: string, signal: AbortSignal): Promise<boolean> {
  const { handlers } = await readHandlers(readConfig(environment()))
  const say = (count: number): string => count.toLocaleString('en')
  console.log(
    `${counted(say(snapshot.count), 'row')} of ${table}. The first ${Math.min(shown, snapshot.count)}:`
  )
  const refused = new Map<string, { count: number; first: string }>()
  /** The content of each taskNo, as a part of its hash. */
  const contents = new Map<string, string>()
  let seen = 0
  for await (const rows of snapshot.batches) {
    if (signal.aborted) break
    for (const row of rows) {
      const text = taskText(row)
      const refusal = typeof text === 'string' ? refusalOf(text, handlers, contents) : readRefusal(text)
      if (seen++ < shown) {
        console.log(typeof text === 'string' ? text : JSON.stringify(row))
        console.log(`  ${refusal ? `would be refused: ${lineOf(refusal)}` : 'would be accepted'}`)
      }
      if (!refusal) continue
      const { count, first } = refused.get(refusal.code) ?? {
        count: 0,
        first: `${row.taskNo}: ${lineOf(refusal)}`
      }
      refused.set(refusal.code, { count: count + 1, first })
    }
  }
  const refusals = [...refused.values()].reduce((sum, one) => sum + one.count, 0)
  console.log(
    `${counted(say(seen), 'row')} checked with ${counted(handlers.size, 'handler')}: ${say(seen - refusals)} would be accepted, ${say(refusals)} refused.`
  )
  for (const [code, { count, first }] of refused)
    console.log(`  ${code} ${counted(say(count), 'time')}, first ${first}`)
  console.log('Nothing was posted. Existing tasks with the same taskNo were not checked.')
  return refusals === 0
}

function readRefusal(verdict: ReturnType<typeof taskText>): Refusal | undefined {
  return typeof verdict === 'object' && verdict.kind === 'rejected'
    ? (JSON.parse(verdict.problem) as Refusal)
    : undefined
}

const lineOf = ({ status, code, pointer = '', detail = '' }: Refusal): string =>
  [status, code, pointer, detail].filter(Boolean).join(' ')
