// Waits until all tasks have come to rest, then reads them back. It uses only the public API.
import { ask, askUntilClear } from './client.ts'
import type { PlannedTask, SeenAlarm, SeenTask } from './history.ts'
import { settled, type SettledOptions } from './settled.ts'

export interface Reader {
  url: string
  headers: Record<string, string>
  signal: AbortSignal
}

async function read<T>({ url, headers, signal }: Reader, path: string): Promise<T | undefined> {
  const answer = await askUntilClear(waitMs => ask(url + path, { headers, waitMs }), [], signal)
  return answer.status === 200 ? (JSON.parse(answer.text) as T) : undefined
}

/** The number of tasks on the first page of SENDING tasks. A full page means "at least". */
async function sending(reader: Reader): Promise<number> {
  const page = await read<{ tasks: unknown[] }>(reader, '/tasks?status=SENDING&limit=200')
  return page?.tasks.length ?? Infinity
}

/** Resolves when every task is in a final state and every open alarm sent. Progress: a task ended, a request arrived, or an alarm was sent. */
export async function drained(
  reader: Reader,
  wait: SettledOptions,
  arrived: () => Promise<number>,
  onLook: (left: number) => void
): Promise<void> {
  await settled(wait, async () => {
    const left = await sending(reader)
    onLook(left)
    const seen = await arrived()
    if (left > 0) return { left, seen }
    const alarms = await readAlarms(reader)
    const sent = alarms.filter(alarm => alarm.sentAt !== undefined || alarm.resolvedAt !== undefined).length
    return { left: alarms.length - sent, seen: seen + sent }
  })
}

export async function readAlarms(reader: Reader): Promise<SeenAlarm[]> {
  const all: SeenAlarm[] = []
  for (let cursor: string | undefined = ''; cursor !== undefined;) {
    const page: { alarms: SeenAlarm[]; nextCursor?: string } | undefined = await read(
      reader,
      `/alarms?limit=200${cursor && `&cursor=${encodeURIComponent(cursor)}`}`
    )
    all.push(...(page?.alarms ?? []))
    cursor = page?.nextCursor
  }
  return all
}

export interface ReadBack {
  tasks: SeenTask[]
  /** The raw answers, for the search for secrets. */
  texts: string[]
}

/** Every task that was posted, refused tasks too. */
export async function readTasks(
  reader: Reader,
  planned: readonly Pick<PlannedTask, 'taskNo'>[],
  onRead: () => void
): Promise<ReadBack> {
  const back: ReadBack = { tasks: [], texts: [] }
  const { url, headers, signal } = reader
  let next = 0
  const reading = async (): Promise<void> => {
    for (let task = planned[next++]; task; task = planned[next++]) {
      const { taskNo } = task
      const answer = await askUntilClear(
        waitMs => ask(`${url}/tasks/${taskNo}`, { headers, waitMs }),
        [],
        signal
      )
      back.texts.push(answer.text)
      onRead()
      if (answer.status === 200) back.tasks.push(JSON.parse(answer.text) as SeenTask)
      else back.tasks.push({ taskNo, status: String(answer.status), deliveries: [], missing: true })
    }
  }
  await Promise.all(Array.from({ length: 8 }, reading))
  return back
}
