import type { LoadedDownstream, LoadedHandler } from '../../handler/loaded.ts'
import type { Task } from '../../domain/types.ts'

/** A value that may contain these can change the path and the query. */
const hostile = '/?#'
const mostTried = 50

/**
 * The members of the body that get into the URL as they are, as JSON pointers: there `url` was forgotten. Each text of the body
 * is tried with characters that must be encoded, if the schema lets them pass. What throws at them is safe.
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
      const made = await request({ ...about, attempt: 1, deliveryId: 'dry-run' })
      if ('url' in made && String(made.url).includes(hostile)) found.push(pointer)
    } catch {} // that attempt would fail, and nothing be sent
  }
  return found
}

/** One copy for each text in it, with that text made hostile. */
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
