import type { LoadedDownstream, LoadedHandler } from '../../handler/loaded.ts'
import type { Task } from '../../domain/types.ts'
import { dryRunId } from '../../handler/checked-request.ts'

/** A value with these characters can change the path and the query. */
const hostile = '/?#'
const mostTried = 50

/**
 * JSON pointers of the body's members that are in the URL without encoding, because the handler does not use `url`. Each text of
 * the body is tried with characters that need encoding, if the schema accepts them. A handler that throws for them is safe.
 */
export async function unencoded(
  { body: schema }: LoadedHandler,
  { request }: LoadedDownstream,
  task: Task,
  raw: string
): Promise<string[]> {
  const found: string[] = []
  for (const { pointer, body } of hostileCopies(JSON.parse(raw)).slice(0, mostTried)) {
    try {
      const read = schema.safeParse(body)
      if (!read.success) continue
      const text = JSON.stringify(body)
      const about = { task: { ...task, messageBody: text }, body: read.data, raw: text }
      const made = await request({ ...about, attempt: 1, deliveryId: dryRunId })
      if ('url' in made && String(made.url).includes(hostile)) found.push(pointer)
    } catch {} // such an attempt would fail, and nothing would be sent
  }
  return found
}

/** One copy of the value for each text in it, with the hostile characters at the end of that text. */
function hostileCopies(value: unknown): { pointer: string; body: unknown }[] {
  if (typeof value === 'string') return [{ pointer: '', body: value + hostile }]
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([name, each]) =>
    hostileCopies(each).map(({ pointer, body }) => ({
      pointer: `/${name}${pointer}`,
      body: Array.isArray(value) ? value.with(Number(name), body) : { ...value, [name]: body }
    }))
  )
}
