import { useState } from 'preact/hooks'
import { get, postText } from '../api.ts'
import { Act } from '../acts.tsx'
import { Field, Heading, Shown, taskPath } from '../parts.tsx'
import { sampleOf } from '../sample.ts'
import type { Task } from '../shapes.ts'
import { useLoaded } from '../loaded.ts'
import { go, may, now, param, texts } from '../state.ts'

interface Handler {
  messageCode: string
  body?: unknown
  downstreams: { name: string }[]
}
interface DryRun {
  taskNo: string
  downstreams: {
    downstream: string
    transport: string
    skipped?: true
    request?: Record<string, unknown>
    warning?: string
    error?: string
  }[]
}

/** A test task for a downstream: first a dry run shows the requests, then the task is sent. */
export function TestTaskPage() {
  const downstream = param('downstream')
  const words = texts.value.test
  const loaded = useLoaded(`test ${downstream}`, async () => {
    const { handlers } = await get<{ handlers: Handler[] }>('/handlers')
    return handlers.filter(one => one.downstreams.some(({ name }) => name === downstream))
  })
  return (
    <>
      <Heading title={texts.value.common.labelled(texts.value.pages.test, downstream)} />
      <p class="quiet">{words.intro}</p>
      <Shown loaded={loaded}>
        {handlers =>
          handlers.length === 0 ? (
            <p class="quiet empty">{words.noHandler}</p>
          ) : (
            <Form handlers={handlers} downstream={downstream} />
          )
        }
      </Shown>
    </>
  )
}

const bodyFor = (handler: Handler | undefined): string => JSON.stringify(sampleOf(handler?.body), null, 2)

function Form({ handlers, downstream }: { handlers: readonly Handler[]; downstream: string }) {
  const words = texts.value.test
  const [code, setCode] = useState(handlers[0]?.messageCode ?? '')
  const [taskNo, setTaskNo] = useState(`test-${now.value.toISOString().replaceAll(/\D/g, '').slice(0, 14)}`)
  const [body, setBody] = useState(() => bodyFor(handlers[0]))
  /** The last dry run. Only the text that it showed can be sent. */
  const [seen, setSeen] = useState<{ text: string; run: DryRun }>()
  // The text is not parsed here, so that its numbers stay unchanged.
  const members = (head: object): string => `${JSON.stringify(head).slice(0, -1)},"messageBody":${body}}`
  const text = members({ taskNo, messageCode: code })
  const isSeen = seen?.text === text
  const look = async (): Promise<void> => {
    const run = await postText<DryRun>(`/handlers/${encodeURIComponent(code)}/dry-run`, members({ taskNo }))
    setSeen({ text, run })
  }
  const send = async (): Promise<void> => {
    go(taskPath((await postText<Task>('/tasks', text)).taskNo))
  }
  return (
    <>
      <section class="card stack">
        <label class="field">
          {texts.value.tasks.code}
          <select
            value={code}
            onChange={event => {
              const next = event.currentTarget.value
              setCode(next)
              setBody(bodyFor(handlers.find(one => one.messageCode === next)))
            }}
          >
            {handlers.map(({ messageCode }) => (
              <option key={messageCode}>{messageCode}</option>
            ))}
          </select>
        </label>
        <Field name={texts.value.task.newNo} value={taskNo} set={setTaskNo} />
        <Field
          name={texts.value.task.body}
          value={body}
          set={setBody}
          rows={Math.min(20, body.split('\n').length + 1)}
        />
        <div class="acts end">
          <Act kind={isSeen ? '' : 'main'} run={look}>
            {words.look}
          </Act>
        </div>
      </section>
      {seen && isSeen ? (
        <section aria-label={words.would}>
          <h2>{words.would}</h2>
          {seen.run.downstreams.map(one => (
            <Request key={one.downstream} of={one} isMeant={one.downstream === downstream} />
          ))}
          {may('tasks:write') ? (
            <>
              <p class="quiet">{words.real}</p>
              <div class="acts end">
                <Act kind="main" run={send}>
                  {words.send}
                </Act>
              </div>
            </>
          ) : null}
        </section>
      ) : null}
    </>
  )
}

function Request({
  of: { downstream, transport, skipped, request, warning, error },
  isMeant
}: {
  of: DryRun['downstreams'][number]
  isMeant: boolean
}) {
  const words = texts.value.test
  return (
    <section class={`card ${error === undefined ? '' : 'failed'}`}>
      <h3>
        {downstream} <span class="quiet">{transport}</span>
        {isMeant ? null : <span class="mark">{words.also}</span>}
      </h3>
      {error === undefined ? null : <p class="failed">{error}</p>}
      {warning === undefined ? null : <p class="quiet">{warning}</p>}
      {skipped ? <p class="quiet">{words.skipped}</p> : null}
      {request === undefined ? null : <pre tabIndex={0}>{lines(request)}</pre>}
    </section>
  )
}

/** An HTTP request in the usual form, any other request as a list of its members. */
function lines({ method, url, headers, body, ...rest }: Record<string, unknown>): string {
  const text = (value: unknown): string =>
    typeof value === 'string' ? value : JSON.stringify(value, null, 2)
  const head = Object.entries(headers ?? {}).map(([name, value]) => `${name}: ${text(value)}`)
  const others = Object.entries(rest).map(([name, value]) => `${name}: ${text(value)}`)
  return [
    ...(url === undefined ? [] : [`${text(method)} ${text(url)}`]),
    ...others,
    ...head,
    ...(body === undefined ? [] : ['', text(body)])
  ].join('\n')
}
