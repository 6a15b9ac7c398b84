import { ask, AskAct } from '../acts.tsx'
import { post, remove } from '../api.ts'
import { Status } from '../parts.tsx'
import type { Delivery, Task } from '../shapes.ts'
import { may, texts } from '../state.ts'

/** The deliveries that are FAILED or SENDING. */
const openOf = ({ deliveries }: Task): Delivery[] =>
  deliveries.filter(one => one.status === 'FAILED' || one.status === 'SENDING')

/** Asks before a settle of these deliveries, and shows each with its status. One that has another status by then stays as it is. */
export function askSettle(
  { taskNo }: Task,
  changed: readonly Delivery[],
  downstream: string | undefined,
  reload: () => Promise<void>
): void {
  const words = texts.value.task
  ask({
    title: texts.value.common.labelled(
      words.settle,
      downstream === undefined ? taskNo : `${taskNo} · ${downstream}`
    ),
    text: (
      <>
        <p>{words.sureSettle}</p>
        <ul class="plain">
          {changed.map(one => (
            <li key={one.downstream}>
              <b>{one.downstream}</b> <Status of={one.status} />
            </li>
          ))}
        </ul>
      </>
    ),
    field: texts.value.common.reason,
    confirm: words.settle,
    run: async reason => {
      await post(`/tasks/${encodeURIComponent(taskNo)}/settle`, {
        status: 'HANDLED',
        reason,
        from: Object.fromEntries(changed.map(one => [one.downstream, one.status]))
      })
      await reload()
    }
  })
}

/** The actions on a whole task. */
export function TaskActs({
  task,
  edit,
  reload
}: {
  task: Task
  edit: (() => void) | undefined
  reload: () => Promise<void>
}) {
  const words = texts.value.task
  const path = `/tasks/${encodeURIComponent(task.taskNo)}`
  const mayWrite = may('ops:write') || may('tasks:write')
  if (!mayWrite) return null
  const has = (status: string): boolean => task.deliveries.some(one => one.status === status)
  return (
    <>
      {has('FAILED') || has('HANDLED') ? (
        <button
          type="button"
          class={has('FAILED') ? 'main' : ''}
          data-key="r"
          onClick={() => {
            const force = { current: !has('FAILED') }
            ask({
              title: texts.value.common.labelled(words.redeliver, task.taskNo),
              text: (
                <>
                  <p>{has('FAILED') ? words.sureRedeliver : words.sureAgain}</p>
                  <label class="check">
                    <input
                      type="checkbox"
                      defaultChecked={force.current}
                      onChange={event => {
                        force.current = event.currentTarget.checked
                      }}
                    />
                    {words.forced}
                  </label>
                </>
              ),
              confirm: words.redeliver,
              run: async () => {
                await post(`${path}/redeliver`, force.current ? { force: true } : {})
                await reload()
              }
            })
          }}
        >
          {words.redeliver}
        </button>
      ) : null}
      {may('ops:write') && (has('FAILED') || has('SENDING')) ? (
        <button type="button" onClick={() => askSettle(task, openOf(task), undefined, reload)}>
          {words.settle}
        </button>
      ) : null}
      {edit && may('tasks:write') ? (
        <button type="button" onClick={edit}>
          {words.edit}
        </button>
      ) : null}
      {has('SENDING') ? (
        <AskAct
          kind="danger"
          name={words.remove}
          about={task.taskNo}
          sure={words.sureDelete}
          run={() => remove(path).then(reload)}
        />
      ) : null}
    </>
  )
}
