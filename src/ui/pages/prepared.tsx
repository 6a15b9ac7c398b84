import { post } from '../api.ts'
import { Act, ask } from '../acts.tsx'
import { Status, Time } from '../parts.tsx'
import type { Task } from '../shapes.ts'
import { may, texts } from '../state.ts'

/** A half message that nobody has ended yet, and what may be said in place of its producer. */
export function Prepared({ task, reload }: { task: Task; reload: () => void }) {
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
          <button
            type="button"
            class="main"
            onClick={() =>
              ask({
                title: `${words.commit}: ${task.taskNo}`,
                text: <p>{words.sureCommit}</p>,
                confirm: words.commit,
                run: async () => {
                  await post(`${path}/commit`)
                  reload()
                }
              })
            }
          >
            {words.commit}
          </button>
          <button
            type="button"
            class="danger"
            onClick={() =>
              ask({
                title: `${words.rollBack}: ${task.taskNo}`,
                text: <p>{words.sureRollBack}</p>,
                confirm: words.rollBack,
                danger: true,
                run: async () => {
                  await post(`${path}/rollback`)
                  reload()
                }
              })
            }
          >
            {words.rollBack}
          </button>
          <Act run={() => post(`${path}/check`).then(reload)}>{words.check}</Act>
        </div>
      ) : null}
    </section>
  )
}
