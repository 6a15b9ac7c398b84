import { post, query, remove } from '../api.ts'
import { Act, ask, AskAct } from '../acts.tsx'
import { Heading, Link, Status, taskPath, Time } from '../parts.tsx'
import type { Delivery, Task } from '../shapes.ts'
import type { LiveChange } from '../live.ts'
import { useList } from '../loaded.ts'
import { go, may, texts } from '../state.ts'
import { List, listOf, taskColumn } from '../list.tsx'

interface HeldKey {
  downstream: string
  orderingKey: string
  heldSince?: string
  head?: { taskNo: string }
  waiting: number
  mayRelease: boolean
}
interface Rejected {
  id: string
  taskNo?: string
  messageCode?: string
  rejectedAt: string
  problem: { code: string; detail?: string }
}
interface Blocked extends Delivery {
  taskNo: string
  messageCode: string
  createdAt: string
  blocker?: { taskNo: string; status: string; orderingKey?: string }
}

const often = { kinds: ['audit', 'failure'] satisfies LiveChange['kind'][], everyMs: 30_000 }

/** Everything that waits for an operator. */
export function HeldPage() {
  return (
    <>
      <Heading title={texts.value.pages.held} />
      <Keys />
      <PreparedTasks />
      <BlockedDeliveries />
      <RejectedRows />
    </>
  )
}

function Keys() {
  const words = texts.value
  const loaded = useList('held keys', listOf<'keys', HeldKey>('keys', '/keys', { held: true }), often)
  const { reload } = loaded
  return (
    <List
      title={words.held.keys}
      loaded={loaded}
      keyOf={row => `${row.downstream} ${row.orderingKey}`}
      columns={[
        { name: 'orderingKey', head: true, cell: row => <b>{row.orderingKey}</b> },
        { name: words.downstreams.name, cell: row => row.downstream },
        {
          name: words.tasks.task,
          cell: row =>
            row.head === undefined ? '' : <Link to={taskPath(row.head.taskNo)}>{row.head.taskNo}</Link>
        },
        { name: words.held.behind, right: true, cell: row => row.waiting },
        { name: words.held.since, cell: row => <Time at={row.heldSince} /> },
        {
          name: ' ',
          cell: row =>
            may('ops:write') ? (
              <div class="acts">
                {row.mayRelease ? <Release row={row} reload={reload} /> : null}
                <Skip row={row} reload={reload} />
              </div>
            ) : null
        }
      ]}
    />
  )
}

/** The PREPARED tasks with at least one check. Those without a check are only in the list of tasks. */
function PreparedTasks() {
  const words = texts.value
  const loaded = useList(
    'held prepared',
    listOf<'tasks', Task>('tasks', '/tasks', { status: 'PREPARED', checked: true }),
    often
  )
  return (
    <>
      <List
        title={words.held.prepared}
        loaded={loaded}
        keyOf={row => row.taskNo}
        open={row => go(taskPath(row.taskNo))}
        columns={[
          taskColumn(),
          { name: words.tasks.code, cell: row => row.messageCode },
          { name: words.held.since, cell: row => <Time at={row.prepared?.preparedAt} /> },
          {
            name: words.held.checks,
            cell: row =>
              `${row.prepared?.checks ?? 0} × ${row.prepared?.lastAnswer ?? ''} ${row.prepared?.lastReason ?? ''}`
          },
          {
            name: ' ',
            cell: row =>
              may('ops:write') || may('tasks:write') ? (
                <Act run={() => post(`/tasks/${encodeURIComponent(row.taskNo)}/check`).then(loaded.reload)}>
                  {words.task.check}
                </Act>
              ) : null
          }
        ]}
      />
      <p>
        <Link to={`/ui/tasks${query({ q: 'status:PREPARED' })}`}>{words.held.allPrepared}</Link>
      </p>
    </>
  )
}

function BlockedDeliveries() {
  const words = texts.value
  const loaded = useList(
    'held blocked',
    listOf<'deliveries', Blocked>('deliveries', '/deliveries', { phase: 'BLOCKED' }),
    often
  )
  return (
    <List
      title={words.held.blocked}
      loaded={loaded}
      keyOf={row => `${row.taskNo} ${row.downstream}`}
      open={row => go(taskPath(row.taskNo))}
      columns={[
        taskColumn(),
        { name: words.downstreams.name, cell: row => row.downstream },
        { name: words.tasks.code, cell: row => row.messageCode },
        { name: words.held.by, cell: ({ blocker }) => (blocker ? <Blocks blocker={blocker} /> : '') },
        { name: words.held.since, cell: row => <Time at={row.createdAt} /> }
      ]}
    />
  )
}

function RejectedRows() {
  const words = texts.value
  const loaded = useList('held rejected', listOf<'rejected', Rejected>('rejected', '/outbox/rejected'), often)
  return (
    <List
      title={words.held.rejected}
      loaded={loaded}
      keyOf={row => row.id}
      columns={[
        { name: words.tasks.task, head: true, cell: row => row.taskNo ?? row.id },
        { name: words.tasks.code, cell: row => row.messageCode ?? '' },
        {
          name: words.common.reason,
          cell: row => <span class="line">{`${row.problem.code} ${row.problem.detail ?? ''}`}</span>
        },
        { name: words.held.since, cell: row => <Time at={row.rejectedAt} /> },
        {
          name: ' ',
          cell: row => (may('ops:write') ? <RejectedActs row={row} reload={loaded.reload} /> : null)
        }
      ]}
    />
  )
}

function Release({ row, reload }: { row: HeldKey; reload: () => Promise<void> }) {
  const words = texts.value.held
  const path = `/keys/${encodeURIComponent(row.downstream)}/${encodeURIComponent(row.orderingKey)}/release`
  return (
    <AskAct
      name={words.release}
      about={[row.orderingKey, row.downstream, row.head?.taskNo].filter(Boolean).join(' · ')}
      sure={words.sureRelease}
      run={() => post(path, row.head ? { taskNo: row.head.taskNo } : {}).then(reload)}
    />
  )
}

/** Ends the FAILED head permanently. After a release instead, it stays FAILED and can be redelivered out of order. */
function Skip({
  row: { downstream, orderingKey, head },
  reload
}: {
  row: HeldKey
  reload: () => Promise<void>
}) {
  const words = texts.value.held
  if (!head) return null
  return (
    <button
      type="button"
      onClick={() =>
        ask({
          title: texts.value.common.labelled(words.skip, `${head.taskNo} · ${downstream}`),
          text: <p>{words.sureSkip}</p>,
          field: texts.value.common.reason,
          confirm: words.skip,
          danger: true,
          run: async reason => {
            const path = `/tasks/${encodeURIComponent(head.taskNo)}/settle`
            await post(path, {
              status: 'DELETED',
              reason: `${reason} (${orderingKey})`,
              from: { [downstream]: 'FAILED' }
            })
            await reload()
          }
        })
      }
    >
      {words.skip}
    </button>
  )
}

function Blocks({ blocker: { taskNo, status, orderingKey } }: { blocker: NonNullable<Blocked['blocker']> }) {
  return (
    <span class="marks">
      <Link to={taskPath(taskNo)}>{taskNo}</Link> <Status of={status} />
      {orderingKey === undefined ? null : <span class="mark">{orderingKey}</span>}
    </span>
  )
}

function RejectedActs({ row, reload }: { row: Rejected; reload: () => Promise<void> }) {
  const words = texts.value.held
  return (
    <div class="acts">
      <Act run={() => post(`/outbox/rejected/${row.id}/retry`).then(reload)}>{words.retry}</Act>
      <AskAct
        kind="danger"
        name={words.remove}
        about={row.taskNo ?? row.id}
        sure={words.sureRemove}
        run={() => remove(`/outbox/rejected/${row.id}`).then(reload)}
      />
    </div>
  )
}
