import { readChanges, type SeenChanges } from '../db/changes.ts'
import type { Sql } from '../db/pool.ts'
import type { Logger } from '../runtime/logger.ts'
import { sharedRoom } from '../runtime/shared-room.ts'

/** The object that has changed, without the new value: a watcher then reads its data again. */
export type Change =
  | { kind: 'failure'; messageCode: string; downstream: string }
  | { kind: 'task'; taskNo: string }
  | { kind: 'audit' }

export interface ChangeWatcher {
  /** The caller. Places are shared between callers. */
  quotaKey: string
  /** Only changes of these messageCodes. Null: of all. */
  messageCodes: readonly string[] | null
  taskNo?: string
  tell: (changes: Change[]) => void
}

/** Returns the function that ends it. 'busy': there are too many watchers, in total or of this caller. */
type WatchChanges = (watcher: ChangeWatcher) => (() => void) | 'busy'

/** The total limit; 100 for one caller if it is alone. */
const mostWatchers = 200
const lookMs = 1_000

/** One look a second for all watchers, and none without them. */
export function watchChanges({ sql, log }: { sql: Sql; log: Logger }): WatchChanges {
  const places = sharedRoom(mostWatchers)
  const watchers = new Set<ChangeWatcher>()
  /** Watchers without a look yet: a change between the page's own read and that look would be missed. */
  const unseen = new Set<ChangeWatcher>()
  let seen: SeenChanges | null = null
  let states = new Map<string, { messageCode: string; state: string }>()
  let timer: NodeJS.Timeout | undefined
  let looking = false

  async function look(): Promise<void> {
    looking = true
    const fresh = new Set(unseen)
    unseen.clear()
    try {
      const taskNos = [...new Set([...watchers].flatMap(({ taskNo }) => taskNo ?? []))]
      const found = await readChanges(sql, seen, taskNos)
      const changed = new Set(
        [...found.tasks].flatMap(([taskNo, { state }]) =>
          states.get(taskNo)?.state === state ? [] : [taskNo]
        )
      )
      for (const watcher of watchers) {
        const { messageCodes, taskNo } = watcher
        const may = (code: string | undefined) => messageCodes === null || messageCodes.includes(code ?? '')
        const changes: Change[] = found.failures
          .filter(one => may(one.messageCode))
          .map(one => ({ kind: 'failure', ...one }))
        const task = taskNo === undefined ? undefined : found.tasks.get(taskNo)
        if (
          taskNo !== undefined &&
          task &&
          (changed.has(taskNo) || fresh.has(watcher)) &&
          may(task.messageCode)
        )
          changes.push({ kind: 'task', taskNo })
        if (found.audit && messageCodes === null) changes.push({ kind: 'audit' })
        if (changes.length > 0) watcher.tell(changes)
      }
      seen = found
      states = found.tasks
    } catch (err) {
      log.debug({ err }, 'watch.failed') // the next look may succeed, and sees what this one missed
      for (const watcher of fresh) if (watchers.has(watcher)) unseen.add(watcher)
    }
    looking = false
    schedule()
  }

  function schedule(): void {
    if (looking) return
    if (watchers.size > 0) timer ??= setTimeout(next, lookMs)
    else {
      seen = null
      states = new Map()
    }
  }
  function next(): void {
    timer = undefined
    void look()
  }

  return watcher => {
    const leave = places.take(watcher.quotaKey)
    if (!leave) return 'busy'
    watchers.add(watcher)
    unseen.add(watcher)
    // The first look determines the start: the page reads earlier changes itself.
    if (seen === null && !looking && timer === undefined) void look()
    else schedule()
    return () => {
      leave()
      watchers.delete(watcher)
      unseen.delete(watcher)
    }
  }
}
