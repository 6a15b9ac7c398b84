// The posted members of a task that the API shows: for a copy of the task, and for its POST as curl.
import type { Task } from './shapes.ts'

/** In the order in which they are displayed. */
const members = [
  'orderingKey',
  'bizType',
  'bizKey',
  'uniqueBiz',
  'needCallback',
  'retryTimes',
  'deliverStartTime',
  'deliverBefore',
  'after'
] as const
export type Member = (typeof members)[number]

const given = (task: Task): Member[] => members.filter(name => task[name] !== undefined)

/** The members that a copy takes over, and those it does not: a past time, or uniqueBiz, which only one task can have. */
export function takeOver(task: Task, now: Date): { taken: Member[]; left: Member[] } {
  const isOver = (name: Member): boolean =>
    name === 'uniqueBiz' ||
    ((name === 'deliverStartTime' || name === 'deliverBefore') &&
      Date.parse(task[name] ?? '') <= now.getTime())
  return {
    taken: given(task).filter(name => !isOver(name)),
    left: given(task).filter(isOver)
  }
}

/** The text of a POST of `taskNo` with these members of a task, and with the given text as body. */
export function postOf(
  task: Task,
  taskNo: string,
  names: readonly Member[],
  extend: unknown,
  body: string
): string {
  const head = {
    taskNo,
    messageCode: task.messageCode,
    sceneType: task.sceneType,
    ...Object.fromEntries(names.map(name => [name, task[name]])),
    ...(extend === undefined ? {} : { extend })
  }
  return `${JSON.stringify(head).slice(0, -1)},"messageBody":${body}}`
}

/** The POST of the same task. A half message is posted as a half message. */
export function samePost(task: Task, body: string): string {
  const text = postOf(task, task.taskNo, given(task), task.extend, body)
  return task.prepared === undefined ? text : `{"prepared":true,${text.slice(1)}`
}

/** The origin of a copied task, in its `extend`. */
export interface Origin {
  copiedFrom: string
  difference?: string
}

export function originOf({ extend }: Pick<Task, 'extend'>): Origin | undefined {
  if (typeof extend !== 'object' || extend === null || !('copiedFrom' in extend)) return undefined
  const { copiedFrom } = extend
  if (typeof copiedFrom !== 'string') return undefined
  const difference = 'difference' in extend ? extend.difference : undefined
  return { copiedFrom, ...(typeof difference === 'string' ? { difference } : {}) }
}

/** The API accepts 1,024 characters of JSON. */
const mostExtend = 1_000

/** The `extend` of a copy: the members of the task's own `extend`, and the origin, as far as there is room. */
export function extendOf(task: Task, changed: readonly string[]): Record<string, unknown> {
  const had = typeof task.extend === 'object' && task.extend !== null ? task.extend : {}
  const { difference: _, ...kept } = { ...had, copiedFrom: task.taskNo } as Record<string, unknown>
  const all = changed.join('\n')
  for (const most of [400, 200, 100]) {
    // The API refuses half of a surrogate pair.
    const cut = all.slice(0, most).replace(/[\uD800-\uDBFF]$/, '')
    const extend = { ...kept, difference: all.length > most ? `${cut}…` : all }
    if (JSON.stringify(extend).length <= mostExtend) return extend
  }
  return JSON.stringify(kept).length <= mostExtend ? kept : (had as Record<string, unknown>)
}

/** The removed and the added lines between the common beginning and the common end. */
export function difference(before: readonly string[], after: readonly string[]): string[] {
  let from = 0
  while (from < before.length && from < after.length && before[from] === after[from]) from++
  let end = 0
  while (
    end < before.length - from &&
    end < after.length - from &&
    before.at(-1 - end) === after.at(-1 - end)
  )
    end++
  return [
    ...before.slice(from, before.length - end).map(line => `- ${line}`),
    ...after.slice(from, after.length - end).map(line => `+ ${line}`)
  ]
}
