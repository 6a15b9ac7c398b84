import { post, remove } from '../api.ts'
import { ask, AskAct } from '../acts.tsx'
import { Link, Status, Table, taskPath, Time } from '../parts.tsx'
import type { Task } from '../shapes.ts'
import { go, may, texts } from '../state.ts'

/** A list of tasks, with the actions on each task. */
export function TaskList({ tasks, reload }: { tasks: readonly Task[]; reload: () => Promise<void> }) {
  const words = texts.value.tasks
  return (
    <Table
      label={texts.value.pages.tasks}
      rows={tasks}
      keyOf={task => task.taskNo}
      open={task => go(taskPath(task.taskNo))}
      act={task => {
        if (mayRedeliver(task)) askRedeliver(task, reload)
      }}
      columns={[
        { name: words.task, head: true, cell: task => <Link to={taskPath(task.taskNo)}>{task.taskNo}</Link> },
        { name: words.status, cell: task => <Status of={task.status} /> },
        { name: words.code, cell: task => task.messageCode },
        {
          name: words.deliveries,
          cell: task => (
            <span class="marks">
              {task.deliveries.map(one => (
                <span
                  key={one.downstream}
                  class={`mark ${one.status.toLowerCase()}`}
                  title={texts.value.status[one.phase ?? one.status]}
                >
                  {one.downstream}
                </span>
              ))}
            </span>
          )
        },
        { name: words.last, cell: task => <span class="line">{lastReason(task)}</span> },
        { name: words.accepted, cell: task => <Time at={task.createdAt} /> },
        { name: ' ', cell: task => <RowActs task={task} reload={reload} /> }
      ]}
    />
  )
}

function lastReason({ deliveries }: Task): string {
  const worst =
    deliveries.find(one => one.status === 'FAILED') ?? deliveries.find(one => one.lastReason !== undefined)
  if (!worst) return ''
  const why = worst.reason === undefined ? '' : (texts.value.reason[worst.reason] ?? worst.reason)
  // A reason like http_503 already contains the status.
  const status = worst.lastReason?.includes(String(worst.lastStatus)) ? undefined : worst.lastStatus
  return [worst.status === 'HANDLED' ? '' : why, status, worst.lastReason].filter(Boolean).join(' · ')
}

const mayWrite = (): boolean => may('ops:write') || may('tasks:write')
const mayRedeliver = (task: Task): boolean =>
  mayWrite() && task.deliveries.some(one => one.status === 'FAILED')

function askRedeliver({ taskNo }: Task, reload: () => Promise<void>): void {
  const words = texts.value.task
  ask({
    title: texts.value.common.labelled(words.redeliver, taskNo),
    text: <p>{words.sureRedeliver}</p>,
    confirm: words.redeliver,
    run: async () => {
      await post(`/tasks/${encodeURIComponent(taskNo)}/redeliver`)
      await reload()
    }
  })
}

function RowActs({ task, reload }: { task: Task; reload: () => Promise<void> }) {
  const words = texts.value.task
  const { taskNo } = task
  return (
    <div class="acts">
      {mayRedeliver(task) ? (
        <button
          type="button"
          aria-label={texts.value.common.labelled(words.redeliver, taskNo)}
          onClick={() => askRedeliver(task, reload)}
        >
          {words.redeliver}
        </button>
      ) : null}
      {mayWrite() && task.deliveries.some(one => one.status === 'SENDING') ? (
        <AskAct
          kind="danger"
          name={words.remove}
          about={taskNo}
          sure={words.sureDelete}
          run={() => remove(`/tasks/${encodeURIComponent(taskNo)}`).then(reload)}
        />
      ) : null}
    </div>
  )
}
