import { post } from '../api.ts'
import { Act, AskAct } from '../acts.tsx'
import { Status, Time } from '../parts.tsx'
import type { Task } from '../shapes.ts'
import { may, texts } from '../state.ts'

/** An open half message, with the actions to commit, roll back or check it in place of its producer. */
export function Prepared({ task, reload }: { task: Task; reload: () => Promise<void> }) {
  const { prepared } = task
  if (!prepared || task.status !== 'PREPARED') return null
  const path = `/tasks/${encodeURIComponent(task.taskNo)}`
  const words = texts.value.task
  return (
    <section class="card">
      <p>
        <Status of="PREPARED" /> <Time at={prepared.preparedAt} /> · {words.checks(prepared.checks)}{' '}
        {prepared.lastAnswer ?? ''} {prepared.lastReason ?? ''}
      </p>
      {may('ops:write') || may('tasks:write') ? (
        <div class="acts">
          <AskAct
            kind="main"
            name={words.commit}
            about={task.taskNo}
            sure={words.sureCommit}
            run={() => post(`${path}/commit`).then(reload)}
          />
          <AskAct
            kind="danger"
            name={words.rollBack}
            about={task.taskNo}
            sure={words.sureRollBack}
            run={() => post(`${path}/rollback`).then(reload)}
          />
          <Act run={() => post(`${path}/check`).then(reload)}>{words.check}</Act>
        </div>
      ) : null}
    </section>
  )
}
