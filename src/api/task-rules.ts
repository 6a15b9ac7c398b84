import type { Invalid } from '../runtime/errors.ts'
import { instant, yearMs, type TaskBody } from './requests.ts'

/** The rules that a task breaks. `forNew`: those that hold for new tasks only, since an accepted task stays accepted. */
export interface BrokenRules {
  always: Invalid[]
  forNew: Invalid[]
}

type Member = keyof TaskBody

/** The rules between members. `unfit`: the members that are wrong by themselves; no rule is judged by them. */
export function brokenRules(task: Partial<TaskBody>, unfit: ReadonlySet<string>, now: Date): BrokenRules {
  const rules: BrokenRules = { always: [], forNew: [] }
  const broken = (member: Member, detail: string, by: readonly Member[] = [], list = rules.always): void => {
    if (!by.some(name => unfit.has(name))) list.push({ detail, pointer: `/${member}` })
  }
  const { prepared = false, checkBack, after, bizType, bizKey, uniqueBiz = false, delay } = task
  if (prepared && after) broken('after', 'a half message cannot wait for other tasks')
  if (!prepared && checkBack) broken('checkBack', 'requires prepared: true', ['prepared'])
  // So that a search for one finds all of it.
  if ((bizType === undefined) !== (bizKey === undefined) || (uniqueBiz && bizType === undefined)) {
    const missing = bizType === undefined ? 'bizType' : 'bizKey'
    broken(missing, 'set both bizType and bizKey, or neither', ['bizType', 'bizKey'])
  }
  const startAt = timeOf(task.deliverStartTime)
  const before = timeOf(task.deliverBefore)
  if (startAt !== null && delay !== undefined) broken('delay', 'set deliverStartTime or delay, not both')
  if (startAt !== null && startAt > now.getTime() + yearMs)
    broken('deliverStartTime', 'must be at most a year ahead')
  if (before === null) return rules
  if (before > now.getTime() + 2 * yearMs) broken('deliverBefore', 'must be at most two years ahead')
  const late = 'must be after the start of delivery'
  if (startAt !== null && before <= startAt) broken('deliverBefore', late)
  else if (before <= Math.max(startAt ?? 0, now.getTime() + (delay ?? 0)))
    broken('deliverBefore', late, [], rules.forNew)
  return rules
}

const timeOf = (text: string | undefined): number | null =>
  text === undefined ? null : (instant(text)?.getTime() ?? null)
