// Buttons for changes, the question before a change, and the message about its result.
import { signal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { focusHeadingIfLost, isFocusLost } from './focus.ts'
import { Failed } from './parts.tsx'
import type { LoadedList } from './loaded.ts'
import { currentKey, here, session, texts } from './state.ts'

/** A button that does nothing while its action runs. It keeps the focus, which a disabled button would lose. An error is shown as a message. */
export function Act({
  children,
  run,
  kind = '',
  label,
  expanded
}: {
  children: ComponentChildren
  run: () => Promise<unknown> | void
  kind?: 'main' | 'danger' | ''
  label?: string
  /** Whether what it opens is open. */
  expanded?: boolean
}) {
  const [busy, setBusy] = useState(false)
  const work = async (): Promise<void> => {
    if (busy) return
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
      aria-disabled={busy}
      {...(label === undefined ? {} : { 'aria-label': label })}
      {...(expanded === undefined ? {} : { 'aria-expanded': expanded })}
      onClick={event => {
        event.stopPropagation()
        void work()
      }}
    >
      {children}
    </button>
  )
}

const message = signal<{ text: string; isWrong: boolean; at: number } | null>(null)
export function say(text: string, isWrong = false): void {
  const at = Date.now()
  message.value = { text, isWrong, at }
  setTimeout(() => {
    if (message.value?.at === at) message.value = null
  }, 6_000)
}
/** The last message. Screen readers announce it. */
export function Said() {
  const { value } = message
  return (
    <div class="said" role="status" aria-live="polite">
      {value ? <p class={value.isWrong ? 'failed' : 'good'}>{value.text}</p> : null}
    </div>
  )
}

interface Confirmation {
  title: string
  text?: ComponentChildren
  /** The name of a required field. */
  field?: string
  confirm: string
  danger?: boolean
  /** The user may close the question while this runs. `isOpen` reports whether it is still shown. */
  run: (input: string, isOpen: () => boolean) => Promise<unknown>
}
interface Asked extends Confirmation {
  id: number
}
const openQuestion = signal<Asked | null>(null)
let lastId = 0
/** Shows a question that must be confirmed before a change runs. It never replaces an open one, which the user may be about to confirm. */
export const ask = (question: Confirmation): void => {
  if (openQuestion.value === null) openQuestion.value = { ...question, id: ++lastId }
}
const isOpen = (question: Asked): boolean => openQuestion.value === question
const close = (question: Asked | null): void => {
  if (openQuestion.value === question) openQuestion.value = null
}

/** The page that the question is about is left. */
export const closeQuestion = (): void => close(openQuestion.value)

// No question of one key is shown to another, nor asked later.
currentKey.subscribe(() => {
  closeQuestion()
  lastId++
})

/** Asks once the question is known, unless the user has opened another question or another page by then. */
export async function askLater(question: Promise<Confirmation>): Promise<void> {
  const id = ++lastId
  const at = here.value
  const known = await question
  if (id === lastId && here.value === at) ask(known)
}

/** A button with a question before its action. Its name is on the confirm button and, with `about`, in the title of the question. */
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
  const title = about === undefined ? name : texts.value.common.labelled(name, about)
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
  const { value } = openQuestion
  const { signedIn } = session.value
  // An open modal would make the sign-in form inert. The question stays in the closed dialog until a sign-in.
  useLayoutEffect(() => {
    if (value === null || !signedIn) return
    ref.current?.showModal()
    return () => ref.current?.close()
  }, [value, signedIn])
  // The button that asked may be gone by then.
  useEffect(() => {
    if (value === null) return
    return () => {
      if (session.value.signedIn) focusHeadingIfLost()
    }
  }, [value])
  return (
    <dialog ref={ref} onCancel={() => close(value)} aria-labelledby="question">
      {value ? <Asking key={value.id} question={value} /> : null}
    </dialog>
  )
}

function Asking({ question }: { question: Asked }) {
  const [text, setText] = useState('')
  const [error, setError] = useState<Error>()
  const [busy, setBusy] = useState(false)
  const { title, field } = question
  const confirm = async (): Promise<void> => {
    if (busy) return
    setBusy(true)
    try {
      await question.run(text, () => isOpen(question))
      if (isOpen(question)) close(question)
      else say(texts.value.common.done(title))
    } catch (err) {
      if (isOpen(question)) setError(err as Error)
      else say(texts.value.common.labelled(title, (err as Error).message), true)
    }
    setBusy(false)
  }
  return (
    <form
      onSubmit={event => {
        event.preventDefault()
        void confirm()
      }}
    >
      <h2 id="question">{title}</h2>
      <div class="stack">{question.text}</div>
      {field === undefined ? null : (
        <label class="field">
          {field}
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
        {/* A change that runs cannot be cancelled. Its outcome is shown as a message. */}
        <button type="button" onClick={() => close(question)}>
          {busy ? texts.value.common.close : texts.value.common.cancel}
        </button>
        <button type="submit" class={question.danger ? 'danger' : 'main'} aria-disabled={busy}>
          {question.confirm}
        </button>
      </div>
    </form>
  )
}

export async function copy(text: string): Promise<void> {
  // A browser has no clipboard API on a page of another host over plain http.
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

/** The end of an incomplete list: a note if it is partial, and a button for the next page. */
export function More<Row>({ of: { value, more } }: { of: LoadedList<Row> }) {
  const [presses, setPresses] = useState(0)
  const end = useRef<HTMLParagraphElement>(null)
  const isWhole = value !== undefined && value.nextCursor === undefined
  // Without a scroll: the reader goes on at the first new row.
  useEffect(() => {
    if (presses > 0 && isFocusLost()) end.current?.focus({ preventScroll: true })
  }, [presses])
  const press = async (): Promise<void> => {
    await more()
    setPresses(before => before + 1)
  }
  return (
    <>
      {value?.partial ? <p class="quiet">{texts.value.common.partial}</p> : null}
      {value?.nextCursor === undefined ? null : <Act run={press}>{texts.value.common.more}</Act>}
      {isWhole && presses > 0 ? (
        <p ref={end} class="quiet" tabIndex={-1}>
          {texts.value.common.whole}
        </p>
      ) : null}
    </>
  )
}
