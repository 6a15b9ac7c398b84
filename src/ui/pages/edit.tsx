import { useState } from 'preact/hooks'
import { postText } from '../api.ts'
import { Act } from '../acts.tsx'
import { isJson, prettyJson } from '../pretty-json.ts'
import { difference, extendOf, postOf, takeOver, type Member } from '../copy-task.ts'
import { Difference, Field, taskPath } from '../parts.tsx'
import type { Task } from '../shapes.ts'
import { go, now, texts } from '../state.ts'

/** A new task with another body. Its `extend` records the original task and the changed lines. */
export function EditAsNew({ task, body }: { task: Task; body: string }) {
  const before = prettyJson(body)
  const [text, setText] = useState(before)
  const [taskNo, setTaskNo] = useState(`${task.taskNo}-2`)
  const [without, setWithout] = useState<readonly Member[]>([])
  const words = texts.value.task
  const { taken, left } = takeOver(task, now.value)
  const changed = difference(before.split('\n'), text.split('\n'))
  const send = async (): Promise<void> => {
    // The API gets the text itself.
    if (!isJson(text)) throw new Error(words.notJson)
    const names = taken.filter(name => !without.includes(name))
    const post = postOf(task, taskNo, names, extendOf(task, changed), text === before ? body : text)
    const made = await postText<Task>('/tasks', post)
    go(taskPath(made.taskNo))
  }
  return (
    <section class="card">
      <Field name={words.newNo} value={taskNo} set={setTaskNo} />
      <Field
        name={words.body}
        value={text}
        set={setText}
        rows={Math.min(24, before.split('\n').length + 2)}
      />
      {taken.length === 0 ? null : (
        <fieldset>
          <legend>{words.takenOver}</legend>
          {taken.map(name => (
            <label key={name} class="check">
              <input
                type="checkbox"
                checked={!without.includes(name)}
                onChange={() =>
                  setWithout(
                    without.includes(name) ? without.filter(one => one !== name) : [...without, name]
                  )
                }
              />
              {name}: {String(task[name])}
            </label>
          ))}
        </fieldset>
      )}
      {left.length === 0 && task.prepared === undefined ? null : (
        <p class="quiet">
          {words.leftOut}{' '}
          {[
            ...left.map(name => `${name}: ${String(task[name])}`),
            ...(task.prepared === undefined ? [] : ['prepared'])
          ].join(', ')}
        </p>
      )}
      <h3>{words.difference}</h3>
      {changed.length === 0 ? <p class="quiet">{words.same}</p> : <Difference lines={changed} />}
      <div class="acts end">
        <Act kind="main" run={send}>
          {words.send}
        </Act>
      </div>
    </section>
  )
}
