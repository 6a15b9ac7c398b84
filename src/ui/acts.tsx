// What changes something: buttons, the question before it, and what came of it.
import { signal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { Failed } from './parts.tsx'
import { texts, type LoadedList } from './state.ts'

/** A button that says while it works, and why it did not. */
export function Act({
  children,
  run,
  kind = '',
  label
}: {
  children: ComponentChildren
  run: () => Promise<unknown> | void
  kind?: 'main' | 'danger' | ''
  label?: string
}) {
  const [busy, setBusy] = useState(false)
  const work = async (): Promise<void> => {
    setBusy(true)
    try {
      await run()
    } catch (error) {
      say((error as Error).message, true)
    }
    setBusy(false)
  }
  return (
    <button
      type="button"
      class={kind}
      disabled={busy}
      {...(label === undefined ? {} : { 'aria-label': label })}
      onClick={event => {
        event.stopPropagation()
        void work()
      }}
    >
      {children}
    </button>
  )
}

const said = signal<{ text: string; isWrong: boolean; at: number } | null>(null)
export function say(text: string, isWrong = false): void {
  const at = Date.now()
  said.value = { text, isWrong, at }
  setTimeout(() => {
    if (said.value?.at === at) said.value = null
  }, 6_000)
}
/** What was said last. A screen reader hears it. */
export function Said() {
  const { value } = said
  return (
    <div class="said" role="status" aria-live="polite">
      {value ? <p class={value.isWrong ? 'failed' : 'good'}>{value.text}</p> : null}
    </div>
  )
}

interface Confirmation {
  title: string
  text?: ComponentChildren
  /** A field that must be filled in. */
  field?: string
  confirm: string
  danger?: boolean
  run: (said: string) => Promise<unknown>
}
const asked = signal<Confirmation | null>(null)
/** Nothing that changes something happens without being asked once. */
export const ask = (question: Confirmation): void => {
  asked.value = question
}

/** A button that asks before it acts. Its name is confirmed, and heads the question with what it is `about`. */
export function AskAct({
  name,
  about,
  sure,
  field,
  kind = '',
  run
}: {
  name: string
  about?: string
  sure: string
  field?: string
  kind?: 'main' | 'danger' | ''
  run: Confirmation['run']
}) {
  const title = about === undefined ? name : `${name}: ${about}`
  const question = {
    title,
    text: <p>{sure}</p>,
    confirm: name,
    danger: kind === 'danger',
    run,
    ...(field === undefined ? {} : { field })
  }
  return (
    <button type="button" class={kind} aria-label={title} onClick={() => ask(question)}>
      {name}
    </button>
  )
}

export function Question() {
  const ref = useRef<HTMLDialogElement>(null)
  const { value } = asked
  const [text, setText] = useState('')
  const [error, setError] = useState<Error>()
  const [busy, setBusy] = useState(false)
  useEffect(() => {
    setText('')
    setError(undefined)
    if (value && !ref.current?.open) ref.current?.showModal()
    if (!value && ref.current?.open) ref.current.close()
  }, [value])
  const close = (): void => {
    asked.value = null
  }
  const confirm = async (question: Confirmation): Promise<void> => {
    setBusy(true)
    try {
      await question.run(text)
      close()
    } catch (wrong) {
      setError(wrong as Error)
    }
    setBusy(false)
  }
  return (
    <dialog ref={ref} onClose={close} aria-labelledby="question">
      {value ? (
        <form
          onSubmit={event => {
            event.preventDefault()
            void confirm(value)
          }}
        >
          <h2 id="question">{value.title}</h2>
          <div class="stack">{value.text}</div>
          {value.field === undefined ? null : (
            <label class="field">
              {value.field}
              <input
                value={text}
                required
                maxLength={1_000}
                onInput={event => setText(event.currentTarget.value)}
              />
            </label>
          )}
          {error ? <Failed error={error} /> : null}
          <div class="acts end">
            <button type="button" onClick={close}>
              {texts.value.common.cancel}
            </button>
            <button type="submit" class={value.danger ? 'danger' : 'main'} disabled={busy}>
              {value.confirm}
            </button>
          </div>
        </form>
      ) : null}
    </dialog>
  )
}

export async function copy(text: string): Promise<void> {
  // Over plain http to another host a browser offers no clipboard.
  if ((navigator.clipboard as Clipboard | undefined) !== undefined) await navigator.clipboard.writeText(text)
  else if (!copySelected(text)) throw new Error(texts.value.common.notCopied)
  say(texts.value.common.copied)
}

function copySelected(text: string): boolean {
  const field = document.createElement('textarea')
  field.value = text
  field.className = 'unseen'
  document.body.append(field)
  field.select()
  try {
    return document.execCommand('copy')
  } finally {
    field.remove()
  }
}

/** What a list does not show yet: it never ends silently. */
export function More<Row>({ of: { value, more } }: { of: LoadedList<Row> }) {
  return (
    <>
      {value?.partial ? <p class="quiet">{texts.value.common.partial}</p> : null}
      {value?.nextCursor === undefined ? null : <Act run={more}>{texts.value.common.more}</Act>}
    </>
  )
}
