import type { Accepted, TaskView } from './deps.ts'
import { Problem } from '../errors.ts'

/** The task, or the refusal; `at` points to where it stands in a batch. */
export function acceptedTask(accepted: Accepted, messageCode: string, at = ''): TaskView {
  switch (accepted.kind) {
    case 'created':
    case 'same':
      return accepted.task
    case 'conflict':
      throw new Problem('TASK_CONFLICT', 'with other content', { pointer: `${at}/taskNo` })
    case 'unknown_code':
      throw new Problem('UNKNOWN_CODE', messageCode, { pointer: `${at}/messageCode` })
    case 'invalid':
      throw new Problem('INVALID', accepted.detail, { pointer: at + accepted.pointer })
  }
}
