import { useEffect, useState } from 'preact/hooks'
import { get, query, ApiRefusal } from '../api.ts'
import { Act, More, say } from '../acts.tsx'
import { Heading, Shown, taskPath } from '../parts.tsx'
import type { Listed } from '../reader.ts'
import {
  filterNames,
  isSearched,
  parseSearch,
  redeliverFilter,
  withFilter,
  type SearchProblem
} from '../search.ts'
import type { Downstream, Task } from '../shapes.ts'
import { askRedeliver } from './failures.tsx'
import { TaskList } from './task-list.tsx'
import { useList, useLoaded } from '../loaded.ts'
import { go, here, may, now, param, remember, remembered, texts } from '../state.ts'

interface Page {
  tasks: Task[]
  nextCursor?: string
  partial?: true
}
interface View {
  name: string
  q: string
}

const read = async (q: string, cursor: string | undefined, limit: number): Promise<Listed<Task>> => {
  const parsed = parseSearch(q, now.value)
  if (!isSearched(parsed)) return { rows: [] }
  const { filter, word } = parsed
  const { tasks, ...next } = await get<Page>(
    `/tasks${query({ ...filter, taskNoPrefix: word, cursor, limit })}`
  )
  return { rows: tasks, ...next }
}

export function TasksPage() {
  const q = param('q')
  const [text, setText] = useState(q)
  const loaded = useList(`tasks ${q}`, (cursor, limit) => read(q, cursor, limit), {
    kinds: ['failure', 'audit'],
    everyMs: 15_000
  })
  useEffect(() => setText(q), [q])
  const known = useKnown()
  const parsed = parseSearch(q, now.value, known?.codes)
  const search = async (next: string): Promise<void> => {
    go(`/ui/tasks${query({ q: next })}`)
    const { href } = here.value
    const open = (taskNo: string): void => {
      // The user may have left while the server looked it up.
      if (here.value.href === href) go(taskPath(taskNo), { replace: true })
    }
    const asked = parseSearch(next, now.value)
    const { word, filter } = asked
    if (!isSearched(asked)) return
    if (filter['webhookId'] !== undefined) {
      const [of] = (await read(next, undefined, 1)).rows
      if (of) open(of.taskNo)
      return
    }
    if (word === '' || Object.keys(filter).length > 0) return
    // A complete taskNo of any age is opened at once.
    const found = await get<Task>(`/tasks/${encodeURIComponent(word)}`).catch((error: unknown) => {
      if (error instanceof ApiRefusal && error.status === 404) return null
      throw error
    })
    if (found) open(found.taskNo)
  }
  const searchOrSay = (next: string): void => {
    search(next).catch((error: Error) => say(error.message, true))
  }
  return (
    <>
      <Heading title={texts.value.pages.tasks} />
      <form
        class="search"
        role="search"
        onSubmit={event => {
          event.preventDefault()
          searchOrSay(text.trim())
        }}
      >
        <input
          type="search"
          aria-label={texts.value.tasks.label}
          placeholder={texts.value.tasks.box}
          value={text}
          spellcheck={false}
          autocomplete="off"
          onInput={event => setText(event.currentTarget.value)}
        />
        <button type="submit" class="main">
          {texts.value.common.search}
        </button>
      </form>
      <Suggestions known={known} text={text} choose={searchOrSay} />
      <Views q={q} />
      {parsed.problems.map((problem, at) => (
        <p key={at} class="failed">
          {problemText(problem)}
        </p>
      ))}
      {isSearched(parsed) ? (
        <Shown loaded={loaded}>
          {({ rows, nextCursor }) => (
            <>
              <RedeliverAll rows={rows} filter={redeliverFilter(parsed, now.value)} />
              {rows.length === 0 && nextCursor !== undefined ? null : (
                <TaskList tasks={rows} reload={loaded.reload} />
              )}
              <More key={loaded.key} of={loaded} />
            </>
          )}
        </Shown>
      ) : null}
    </>
  )
}

function problemText(problem: SearchProblem): string {
  const words = texts.value.tasks
  switch (problem.code) {
    case 'UNKNOWN':
      return words.unknown(problem.name)
    case 'SECOND_WORD':
      return words.secondWord(problem.word)
    case 'TWICE':
      return words.twice(problem.name)
    case 'NO_VALUE':
      return words.noValue(problem.name)
    case 'NO_TIME':
      return words.noTime(problem.text)
    case 'OPEN_QUOTE':
      return words.openQuote(problem.text)
    case 'MISSING':
      return words.missing(problem.name, problem.needs)
  }
}

/** Redelivers all matching FAILED deliveries, also those on other pages. They are counted first. */
function RedeliverAll({
  rows,
  filter
}: {
  rows: readonly Task[]
  filter: Record<string, string> | undefined
}) {
  const hasFailed = rows.some(task => task.deliveries.some(one => one.status === 'FAILED'))
  if (!filter || !hasFailed || !may('ops:write')) return null
  return (
    <div class="acts end">
      <Act run={() => askRedeliver(filter)}>{texts.value.tasks.redeliverAll}</Act>
    </div>
  )
}

interface Known {
  downstreams: string[]
  codes: string[]
}
function useKnown(): Known | undefined {
  const { value } = useLoaded('names', async (): Promise<Known> => {
    const [downstreams, handlers] = may('ops:read')
      ? await Promise.all([
          get<{ downstreams: Downstream[] }>('/downstreams'),
          get<{ handlers: { messageCode: string }[] }>('/handlers')
        ])
      : [{ downstreams: [] }, { handlers: [] }]
    return {
      downstreams: downstreams.downstreams.map(one => one.name),
      codes: handlers.handlers.map(one => one.messageCode)
    }
  })
  return value
}

/** Suggestions for the typed text: names of filters, and existing values. */
function Suggestions({
  known,
  text,
  choose
}: {
  known: Known | undefined
  text: string
  choose: (text: string) => void
}) {
  const last = text.split(/\s+/).at(-1) ?? ''
  const [, name = '', begun = ''] = /^(\w+):(.*)$/.exec(last) ?? []
  const values: Record<string, string[]> = {
    status: ['FAILED', 'SENDING', 'HANDLED', 'DELETED', 'PREPARED', 'CANCELLED'],
    downstream: known?.downstreams ?? [],
    code: known?.codes ?? [],
    from: ['15m', '1h', '6h', '1d', '7d'],
    reason: Object.keys(texts.value.reason)
  }
  const options =
    name === ''
      ? [
          'status:FAILED',
          'status:SENDING',
          'from:1h',
          'from:7d',
          ...(values['downstream'] ?? []).slice(0, 5).map(one => `downstream:${one}`),
          ...(values['code'] ?? []).slice(0, 5).map(one => `code:${one}`)
        ].filter(one => last === '' || one.startsWith(last))
      : (values[name] ?? [])
          .filter(one => one.toLowerCase().startsWith(begun.toLowerCase()))
          .map(one => `${name}:${one}`)
  if (options.length === 0 && name === '' && filterNames.every(one => !one.startsWith(last))) return null
  return (
    <div class="chips" role="group" aria-label={texts.value.common.search}>
      {options.slice(0, 14).map(option => {
        const [filter = '', value = ''] = option.split(/:(.*)/)
        return (
          <button
            key={option}
            type="button"
            onClick={() =>
              choose(
                withFilter(
                  last !== '' && option.startsWith(last) ? text.slice(0, -last.length) : text,
                  filter,
                  value
                )
              )
            }
          >
            {option}
          </button>
        )
      })}
    </div>
  )
}

function savedViews(): View[] {
  try {
    const saved = JSON.parse(remembered('views') ?? '[]') as unknown
    return Array.isArray(saved) ? (saved as View[]) : []
  } catch {
    return []
  }
}

function Views({ q }: { q: string }) {
  const [views, setViews] = useState<View[]>(savedViews)
  const keep = (next: View[]): void => {
    setViews(next)
    remember('views', JSON.stringify(next))
  }
  const isKnown = views.some(one => one.q === q)
  return (
    <div class="chips" role="group" aria-label={texts.value.tasks.views}>
      <button type="button" aria-pressed={q === ''} onClick={() => go('/ui/tasks')}>
        {texts.value.tasks.all}
      </button>
      {views.map(view => (
        <button
          key={view.q}
          type="button"
          aria-pressed={view.q === q}
          onClick={() => go(`/ui/tasks${query({ q: view.q })}`)}
        >
          ★ {view.name}
        </button>
      ))}
      {q === '' ? null : isKnown ? (
        <Act kind="" run={() => keep(views.filter(one => one.q !== q))}>
          {texts.value.common.forget}
        </Act>
      ) : (
        <Act run={() => keep([...views, { name: q, q }])}>{texts.value.common.save}</Act>
      )}
    </div>
  )
}
