import type { Content } from '../domain/content.ts'
import { durationMs, durationText } from '../handler/define.ts'
import { contentHash } from '../json/reader.ts'
import { instant, type TaskBody } from './requests.ts'

/** How long to wait before a check, if a half message does not say it. */
export const checkAfterMs = 35_000

/** The content of a posted task. Its normal form is hashed only if that is not how it was posted. */
export function contentOf(task: TaskBody, bodyText: string): Content {
  const normal = normalOf(task)
  return {
    contentHash: contentHash(task, bodyText),
    contentNormal: normal === task ? null : contentHash(normal, bodyText)
  }
}

/** A member in its normal form: the value itself if it has that form, and undefined if it says no more than its absence. */
type Normal<Value> = (value: Value) => unknown

/**
 * The members of a task that can say the same in several ways. A released form must never change: the hashes of stored tasks would no
 * longer be those of a repeated post.
 */
const normals: { [Name in keyof TaskBody]?: Normal<NonNullable<TaskBody[Name]>> } = {
  sceneType: text => text || undefined,
  delay: ms => ms || undefined,
  deliverStartTime: normalTime,
  deliverBefore: normalTime,
  extend: value => (Object.keys(value).length > 0 ? value : undefined),
  uniqueBiz: is => is || undefined,
  prepared: is => is || undefined,
  checkBack: normalCheckBack,
  after: normalSet
}

/** The task itself if it is in its normal form. */
function normalOf(task: TaskBody): TaskBody {
  const changed: Record<string, unknown> = {}
  let isNormal = true
  for (const name of names) {
    const value = task[name]
    if (value === undefined) continue
    const normal = (normals[name] as Normal<unknown>)(value)
    if (normal === value) continue
    changed[name] = normal
    isNormal = false
  }
  return isNormal ? task : { ...task, ...changed }
}
const names = Object.keys(normals) as (keyof TaskBody)[]

/** In UTC with three digits of a second, rounded up: as an outbox row is read, and as `toISOString` writes it. */
function normalTime(text: string): string | undefined {
  return isoTime.test(text) ? text : instant(text)?.toISOString()
}
const isoTime = /^[^t]+T[^.]+\.\d{3}Z$/

function normalCheckBack(checkBack: NonNullable<TaskBody['checkBack']>): typeof checkBack | undefined {
  const ms = durationMs(checkBack.after) ?? checkAfterMs
  if (ms === checkAfterMs) return undefined
  const after = durationText(ms)
  return after === checkBack.after ? checkBack : { after }
}

/** The order of what a task waits for does not matter, nor does a repetition. */
function normalSet(taskNos: readonly string[]): readonly string[] {
  const sorted = [...new Set(taskNos)].sort()
  return sorted.length === taskNos.length && sorted.every((one, at) => one === taskNos[at]) ? taskNos : sorted
}
