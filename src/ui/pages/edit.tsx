import { useState } from 'preact/hooks'
import { postText } from '../api.ts'
import { Act } from '../acts.tsx'
import { taskPath } from '../parts.tsx'
import type { Task } from '../shapes.ts'
import { go, texts } from '../state.ts'

/** A new task with another body. What it was made from, and which lines differ, stays in its `extend`. */
export function EditAsNew({ task, body }: { task: Task; body: string }) {
  const before = lines(body)
  const [text, setText] = useState(before.join('\n'))
  const [taskNo, setTaskNo] = useState(`${task.taskNo}-2`)
  const words = texts.value.task
  const changed = difference(before, text.split('\n'))
  const send = async (): Promise<void> => {
    // The API reads the text itself: only whether it is JSON is looked at here.
    JSON.parse(text)
    const kept = changed.join('\n')
    const extend = {
      copiedFrom: task.taskNo,
      difference: kept.length > 400 ? `${kept.slice(0, 400)}…` : kept
    }
    const head = { taskNo, messageCode: task.messageCode, sceneType: task.sceneType, extend }
    const made = await postText<Task>('/tasks', `${JSON.stringify(head).slice(0, -1)},"messageBody":${text}}`)
    go(taskPath(made.taskNo))
  }
  return (
    <section class="card">
      <label class="field">
        {words.newNo}
        <input value={taskNo} onInput={event => setTaskNo(event.currentTarget.value)} />
      </label>
      <label class="field">
        {words.body}
        <textarea
          rows={Math.min(24, before.length + 2)}
          spellcheck={false}
          value={text}
          onInput={event => setText(event.currentTarget.value)}
        />
      </label>
      <h3>{words.difference}</h3>
      {changed.length === 0 ? (
        <p class="quiet">{words.same}</p>
      ) : (
        <pre tabIndex={0}>
          {changed.map((line, at) => (
            <span key={at} class={line.startsWith('+') ? 'plus' : 'minus'}>
              {`${line}\n`}
            </span>
          ))}
        </pre>
      )}
      <div class="acts end">
        <Act kind="main" run={send}>
          {words.send}
        </Act>
      </div>
    </section>
  )
}

function lines(body: string): string[] {
  return JSON.stringify(JSON.parse(body) as unknown, null, 2).split('\n')
}

/** Lines that are gone and lines that are new, of what lies between a common beginning and a common end. */
function difference(before: readonly string[], after: readonly string[]): string[] {
  let from = 0
  while (from < before.length && from < after.length && before[from] === after[from]) from++
  let end = 0
  while (
    end < before.length - from &&
    end < after.length - from &&
    before.at(-1 - end) === after.at(-1 - end)
  )
    end++
  return [
    ...before.slice(from, before.length - end).map(line => `- ${line}`),
    ...after.slice(from, after.length - end).map(line => `+ ${line}`)
  ]
}
