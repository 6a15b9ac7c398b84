import { useEffect, useState } from 'preact/hooks'
import { get, post } from '../api.ts'
import { Act } from '../acts.tsx'
import { Heading, number, Shown, Status, taskPath, Time } from '../parts.tsx'
import { List, listOf, taskColumn } from '../list.tsx'
import { filterText } from './failures.tsx'
import type { Operation } from '../shapes.ts'
import { useList, useLoaded } from '../loaded.ts'
import { go, may, param, texts } from '../state.ts'

interface Taken {
  taskNo: string
  downstream: string
  result?: string
  status: string
  attempt: number
  lastReason?: string
  failedAgain: boolean
}

/** A bulk redelivery: its progress, and the state of each delivery that it redelivered. */
export function OperationPage() {
  const id = param('id')
  /** 0: the operation has ended, and nothing changes any more. */
  const [everyMs, setEveryMs] = useState(1_000)
  const loaded = useLoaded(
    `operation ${id}`,
    async () => {
      const one = await get<Operation>(`/operations/${encodeURIComponent(id)}`)
      const isOver = one.state !== 'RUNNING' && (one.deliveries?.['SENDING'] ?? 0) === 0
      // For a large operation, the count takes the database some time.
      setEveryMs(isOver ? 0 : one.redelivered > 10_000 ? 5_000 : 1_000)
      return one
    },
    { kinds: ['audit'], ...(everyMs === 0 ? {} : { everyMs }) }
  )
  return (
    <Shown loaded={loaded}>
      {one => (
        <>
          <Heading title={texts.value.pages.operation}>
            {one.state === 'RUNNING' && may('ops:write') ? (
              <Act
                kind="danger"
                run={() => post(`/operations/${encodeURIComponent(id)}/stop`).then(loaded.reload)}
              >
                {texts.value.operation.stop}
              </Act>
            ) : null}
          </Heading>
          <p class="about">
            <Status of={one.state} />
            <span>
              {texts.value.operation.by} {one.createdBy} <Time at={one.createdAt} />
            </span>
            <span class="quiet">{filterText(one.filter)}</span>
          </p>
          <Progress one={one} />
          <Proof one={one} />
          <Deliveries id={id} counts={JSON.stringify(one.deliveries)} />
        </>
      )}
    </Shown>
  )
}

function Progress({ one }: { one: Operation }) {
  const words = texts.value.operation
  const done = one.redelivered + one.skipped
  // At its end it has also looked at those that were too many to count.
  const all =
    typeof one.matched === 'number' ? number(one.matched) : one.state === 'DONE' ? number(done) : one.matched
  const most = typeof one.matched === 'number' ? one.matched : Math.max(done, 10_000)
  return (
    <section class="card">
      <p>
        <label for="progress">{words.progress(done, all)}</label>
      </p>
      <progress
        id="progress"
        max={Math.max(1, most)}
        value={one.state === 'DONE' ? Math.max(1, most) : done}
      />
      <p class="quiet">
        {words.redelivered(number(one.redelivered))} · {words.skipped(number(one.skipped))}
      </p>
    </section>
  )
}

/** Up to this number the API counts all deliveries, above it only those that are SENDING or FAILED. */
const mostCounted = 10_000

/** The number of redelivered deliveries by status. The sum is the number of all, so a missing delivery would be visible. */
function Proof({ one }: { one: Operation }) {
  const words = texts.value.operation
  const counts = one.deliveries ?? {}
  const handled = counts['HANDLED'] ?? 0
  const sending = counts['SENDING'] ?? 0
  const failed = counts['FAILED'] ?? 0
  const gone = typeof one.matched === 'number' ? one.matched - one.redelivered - one.skipped : 0
  const isAll = one.skipped === 0 && (typeof one.matched === 'string' || one.matched <= one.redelivered)
  const isDone = one.state === 'DONE' && one.redelivered > 0 && isAll
  const isWhole = isDone && handled === one.redelivered
  const isMany = one.redelivered > mostCounted && one.state !== 'RUNNING'
  return (
    <section class="card" aria-live="polite">
      <h2>{words.now}</h2>
      <p class="marks">
        {Object.entries(counts).map(([status, n]) => (
          <span key={status} class="marks">
            <Status of={status} /> <b>{number(n)}</b>
          </span>
        ))}
        {isMany ? (
          <span class="marks">
            <Status of="HANDLED" /> / <Status of="DELETED" />{' '}
            <b>{number(one.redelivered - sending - failed)}</b>
          </span>
        ) : null}
      </p>
      {isDone && isMany && sending + failed === 0 ? (
        <p class="good proof" id="whole">
          {words.noneOpen(number(one.redelivered))}
        </p>
      ) : null}
      {isWhole ? (
        <p class="good proof" id="whole">
          {words.whole(handled)}
        </p>
      ) : null}
      {sending > 0 ? <p>{words.open(sending)}</p> : null}
      {failed > 0 ? <p class="failed">{words.again(failed)}</p> : null}
      {one.skipped > 0 ? <p class="quiet">{words.lost(one.skipped)}</p> : null}
      {one.state === 'DONE' && gone > 0 ? <p class="quiet">{words.gone(gone)}</p> : null}
    </section>
  )
}

/** Read again when the counts change. Otherwise it would show FAILED for a while below "All are HANDLED". */
function Deliveries({ id, counts }: { id: string; counts: string | undefined }) {
  const words = texts.value
  const loaded = useList(
    `taken ${id}`,
    listOf<'deliveries', Taken>('deliveries', `/operations/${encodeURIComponent(id)}/deliveries`),
    { everyMs: 5_000 }
  )
  useEffect(() => {
    void loaded.reload()
  }, [counts])
  return (
    <List
      title={words.operation.list}
      loaded={loaded}
      keyOf={row => `${row.taskNo} ${row.downstream}`}
      open={row => go(taskPath(row.taskNo))}
      columns={[
        taskColumn(),
        { name: words.downstreams.name, cell: row => row.downstream },
        { name: words.tasks.status, cell: row => <Status of={row.status} /> },
        { name: words.tasks.last, cell: row => <span class="line">{row.lastReason ?? ''}</span> }
      ]}
    />
  )
}
