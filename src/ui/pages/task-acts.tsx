import { ask } from '../acts.tsx'
import { post, remove } from '../api.ts'
import type { Task } from '../shapes.ts'
import { may, texts } from '../state.ts'

/** What may be done to a task as a whole. */
export function TaskActs({
  task,
  edit,
  reload
}: {
  task: Task
  edit: (() => void) | undefined
  reload: () => void
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
              title: words.redeliver,
              text: (
                <>
                  <p>{words.sureRedeliver}</p>
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
                reload()
              }
            })
          }}
        >
          {words.redeliver}
        </button>
      ) : null}
      {may('ops:write') && (has('FAILED') || has('SENDING')) ? (
        <button
          type="button"
          onClick={() =>
            ask({
              title: words.settle,
              text: <p>{words.sureSettle}</p>,
              field: texts.value.common.reason,
              confirm: words.settle,
              run: async reason => {
                await post(`${path}/settle`, { status: 'HANDLED', reason })
                reload()
              }
            })
          }
        >
          {words.settle}
        </button>
      ) : null}
      {edit && may('tasks:write') ? (
        <button type="button" onClick={edit}>
          {words.edit}
        </button>
      ) : null}
      {has('SENDING') ? (
        <button
          type="button"
          class="danger"
          onClick={() =>
            ask({
              title: words.remove,
              text: <p>{words.sureDelete}</p>,
              confirm: words.remove,
              danger: true,
              run: async () => {
                await remove(path)
                reload()
              }
            })
          }
        >
          {words.remove}
        </button>
      ) : null}
    </>
  )
}
