import { useState } from 'preact/hooks'
import { waitingText } from '../../domain/waiting-for.ts'
import { get, getText, post, query } from '../api.ts'
import { Act, ask, copy } from '../acts.tsx'
import { prettyJson, withDataAsText } from '../pretty-json.ts'
import { originOf, samePost } from '../copy-task.ts'
import { clock, Difference, Heading, Link, Shown, Status, taskPath, Time } from '../parts.tsx'
import type { Alarm, AuditRow, Delivery, Task } from '../shapes.ts'
import { useLoaded } from '../loaded.ts'
import { withFilter } from '../search.ts'
import { language, may, now, param, session, texts } from '../state.ts'
import { EditAsNew } from './edit.tsx'
import { Prepared } from './prepared.tsx'
import { SentNow } from './sent.tsx'
import { askSettle, TaskActs } from './task-actions.tsx'
import { Timeline } from './timeline.tsx'

interface Read {
  task: Task
  /** The text as posted. */
  body: string | undefined
  audit: AuditRow[]
  alarms: Alarm[]
}

async function read(taskNo: string): Promise<Read> {
  const text = await getText(`/tasks/${encodeURIComponent(taskNo)}`)
  const mayAudit = may('ops:read') && session.value.messageCodes === null
  const [{ audit }, { alarms }] = await Promise.all([
    mayAudit ? get<Pick<Read, 'audit'>>(`/audit${query({ target: taskNo, limit: 100 })}`) : { audit: [] },
    may('ops:read') ? get<Pick<Read, 'alarms'>>(`/alarms${query({ taskNo, limit: 100 })}`) : { alarms: [] }
  ])
  return { task: JSON.parse(withDataAsText(text)) as Task, body: bodyOf(text), audit, alarms }
}

/** The posted text of the body, which is the last member of the answer. JSON.parse would change its numbers. */
function bodyOf(text: string): string | undefined {
  const mark = ',"messageBody":'
  for (let at = text.indexOf(mark); at >= 0; at = text.indexOf(mark, at + 1)) {
    const body = text.slice(at + mark.length, -1)
    try {
      JSON.parse(`${text.slice(0, at)}}`)
      return body
    } catch {
      // This match is inside another text.
    }
  }
  return undefined
}

export function TaskPage() {
  const taskNo = param('no')
  // Why it waits depends on other tasks, pauses and processes, whose changes are not changes of this task.
  const loaded = useLoaded(`task ${taskNo}`, () => read(taskNo), {
    kinds: ['task', 'audit'],
    everyMs: 10_000,
    while: ({ task }) => task.status === 'PREPARED' || task.deliveries.some(one => one.status === 'SENDING')
  })
  const [editing, setEditing] = useState(false)
  return (
    <Shown loaded={loaded}>
      {({ task, body, audit, alarms }) => (
        <>
          <Heading title={task.taskNo}>
            <TaskActs
              task={task}
              edit={body === undefined ? undefined : () => setEditing(!editing)}
              reload={loaded.reload}
            />
          </Heading>
          <p class="about">
            <Status of={task.status} /> <span>{task.messageCode}</span>
            {task.sceneType === '' ? null : <span>{task.sceneType}</span>}
            <span>
              {texts.value.task.accepted} <Time at={task.createdAt} />
            </span>
            {task.createdBy === undefined ? null : <span>{texts.value.task.postedBy(task.createdBy)}</span>}
            {task.bizKey === undefined ? null : (
              <Link
                to={`/ui/tasks${query({ q: withFilter(withFilter('', 'bizType', task.bizType ?? ''), 'bizKey', task.bizKey) })}`}
              >
                {task.bizType} {task.bizKey}
              </Link>
            )}
          </p>
          {editing && body !== undefined ? <EditAsNew task={task} body={body} /> : null}
          <CopiedFrom task={task} />
          <Prepared task={task} reload={loaded.reload} />
          {task.deliveries.map(one => (
            <DeliveryCard key={one.downstream} task={task} of={one} reload={loaded.reload} />
          ))}
          <Others title={texts.value.task.after} taskNos={task.after} />
          <Others title={texts.value.task.before} taskNos={task.before} />
          <section>
            <h2>{texts.value.task.timeline}</h2>
            <Timeline task={task} audit={audit} alarms={alarms} />
          </section>
          <section>
            <h2>{texts.value.task.body}</h2>
            {body === undefined ? (
              <p class="quiet">{texts.value.common.noBody}</p>
            ) : (
              <>
                <pre tabIndex={0}>{prettyJson(body)}</pre>
                <div class="acts">
                  <Act run={() => copy(body)}>{texts.value.common.copy}</Act>
                  <Act run={() => copy(curl(task, body))}>{texts.value.task.curl}</Act>
                </div>
              </>
            )}
          </section>
        </>
      )}
    </Shown>
  )
}

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`
/** The POST of the same task, as a curl command. */
const curl = (task: Task, body: string): string =>
  `curl -H 'content-type: application/json' -H 'authorization: Bearer '"$ACKBOX_KEY" -d ${quoted(samePost(task, body))} ${location.origin}/tasks`

/** The origin of a task that is an edited copy of another task. */
function CopiedFrom({ task }: { task: Task }) {
  const origin = originOf(task)
  if (!origin) return null
  const { copiedFrom, difference } = origin
  return (
    <section>
      <p class="about">
        <span class="quiet">{texts.value.task.copiedFrom}</span>
        <Link to={taskPath(copiedFrom)}>{copiedFrom}</Link>
      </p>
      {difference ? <Difference lines={difference.split('\n')} /> : null}
    </section>
  )
}

function DeliveryCard({ task, of, reload }: { task: Task; of: Delivery; reload: () => Promise<void> }) {
  const words = texts.value.task
  const path = `/tasks/${encodeURIComponent(task.taskNo)}`
  const mayWrite = may('ops:write') || may('tasks:write')
  const isOpen = of.status === 'FAILED' || of.status === 'SENDING'
  return (
    <section class={`card ${of.status.toLowerCase()}`} aria-label={of.downstream}>
      <div class="heading">
        <h2>{of.downstream}</h2>
        <span class="marks">
          <Status of={of.status} />
          {of.phase === undefined ? null : (
            <span class="mark">{texts.value.status[of.phase] ?? of.phase}</span>
          )}
          {of.reason === undefined ? null : (
            <span class="mark">{texts.value.reason[of.reason] ?? of.reason}</span>
          )}
          <span class="quiet">
            {of.attempt === 0 ? words.noAttempt : words.attempt(of.attempt)} · {words.triesLeft(of.triesLeft)}
          </span>
          {of.position === undefined ? null : (
            <span class="mark">{`${task.orderingKey} #${of.position}`}</span>
          )}
          {of.outOfOrder ? <span class="mark failed">{words.outOfOrder}</span> : null}
          {of.ahead === undefined ? null : (
            <span class="quiet">
              {words.ahead} <Link to={taskPath(of.ahead)}>{of.ahead}</Link>
            </span>
          )}
        </span>
        <div class="acts">
          {may('ops:write') && of.phase === 'WAITING' && of.attempt > 0 ? (
            <Act run={() => post(`${path}/push`, { downstream: of.downstream }).then(reload)}>
              {words.push}
            </Act>
          ) : null}
          {mayWrite && of.status === 'FAILED' && task.deliveries.length > 1 ? (
            <Redeliver path={path} downstream={of.downstream} reload={reload} />
          ) : null}
          {may('ops:write') && isOpen && task.deliveries.length > 1 ? (
            <button
              type="button"
              aria-label={texts.value.common.labelled(words.settle, of.downstream)}
              onClick={() => askSettle(task, [of], of.downstream, reload)}
            >
              {words.settle}
            </button>
          ) : null}
          {mayWrite && of.status === 'HANDLED' ? (
            <Redeliver path={path} downstream={of.downstream} isHandled reload={reload} />
          ) : null}
        </div>
      </div>
      {of.waitingFor ? (
        <p class="waits">
          <span class="quiet">{words.waits}</span>{' '}
          {waitingText(of.waitingFor, language.value, { now: now.value, clock })}
          {of.waitingFor.code === 'TASK' ? (
            <>
              {' '}
              <Link to={taskPath(of.waitingFor.blocker.taskNo)}>{of.waitingFor.blocker.taskNo}</Link>
            </>
          ) : null}
        </p>
      ) : null}
      {of.updatedBy === undefined ? null : <p class="quiet">{words.changedBy(of.updatedBy)}</p>}
      {of.handledAt === undefined ? null : (
        <p>
          {texts.value.status['HANDLED']} <Time at={of.handledAt} />
        </p>
      )}
      {may('tasks:read') ? <SentNow path={path} downstream={of.downstream} /> : null}
    </section>
  )
}

function Others({ title, taskNos }: { title: string; taskNos: string[] | undefined }) {
  if (!taskNos || taskNos.length === 0) return null
  return (
    <p class="about">
      <span class="quiet">{title}</span>
      {taskNos.map(one => (
        <Link key={one} to={taskPath(one)}>
          {one}
        </Link>
      ))}
    </p>
  )
}

/** Redelivers to one downstream. A HANDLED delivery is redelivered only with force. */
function Redeliver({
  path,
  downstream,
  isHandled = false,
  reload
}: {
  path: string
  downstream: string
  isHandled?: boolean
  reload: () => Promise<void>
}) {
  const words = texts.value.task
  const act = (): void =>
    ask({
      title: words.redeliverOne(downstream),
      text: <p>{isHandled ? words.sureAgain : words.sureRedeliverOne}</p>,
      confirm: words.redeliver,
      run: async () => {
        await post(`${path}/redeliver`, { downstream, ...(isHandled ? { force: true } : {}) })
        await reload()
      }
    })
  return (
    <button type="button" aria-label={words.redeliverOne(downstream)} onClick={act}>
      {words.redeliver}
    </button>
  )
}
