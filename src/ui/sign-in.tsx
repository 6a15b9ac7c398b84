// The sign-in form, the choices of language and theme, and the sign-out.
import { useEffect, useRef, useState } from 'preact/hooks'
import { get, post, remove } from './api.ts'
import { say } from './acts.tsx'
import { focusNextHeading } from './focus.ts'
import { Choice, Failed } from './parts.tsx'
import type { Session } from './session.ts'
import { go, isLeaving, language, remember, session, speak, texts, theme } from './state.ts'

export function Looks() {
  return (
    <>
      <Choice
        label="Language"
        values={['en', 'zh'] as const}
        value={language.value}
        choose={speak}
        nameOf={one => (one === 'zh' ? '中文' : 'EN')}
      />
      <button
        type="button"
        class="plain"
        aria-label={texts.value.common.labelled(texts.value.common.theme, texts.value.common[theme.value])}
        title={texts.value.common.labelled(texts.value.common.theme, texts.value.common[theme.value])}
        onClick={() => {
          theme.value = theme.value === 'auto' ? 'dark' : theme.value === 'dark' ? 'light' : 'auto'
          remember('theme', theme.value)
        }}
      >
        {theme.value === 'auto' ? '◐' : theme.value === 'dark' ? '●' : '○'}
      </button>
    </>
  )
}

export function SignOut() {
  return (
    <button
      type="button"
      class="plain"
      onClick={() => {
        isLeaving.value = true
        void remove<Session>('/session')
          .then(
            left => {
              session.value = left
              go('/ui/')
            },
            (error: Error) => say(error.message, true)
          )
          .finally(() => {
            isLeaving.value = false
          })
      }}
    >
      {texts.value.signIn.out}
    </button>
  )
}

/** A browser drops a Secure cookie that comes over plain http, and says nothing of it. */
async function signIn(key: string): Promise<Session> {
  await post<Session>('/session', { key })
  const read = await get<Session>('/session')
  if (!read.signedIn) throw new Error(texts.value.signIn.noCookie)
  return read
}

export function SignIn({ ended = false }: { ended?: boolean }) {
  const [error, setError] = useState<Error>()
  const [key, setKey] = useState('')
  const input = useRef<HTMLInputElement>(null)
  useEffect(() => {
    document.title = `${texts.value.signIn.title} · Ackbox`
  })
  useEffect(() => {
    if (ended) input.current?.focus()
  }, [])
  return (
    <main class="sign-in">
      <form
        onSubmit={event => {
          event.preventDefault()
          signIn(key.trim()).then(
            signedIn => {
              session.value = signedIn
              focusNextHeading()
            },
            (err: Error) => setError(err)
          )
        }}
      >
        <h1>
          <img src="/ui/icon.svg" alt="" width="32" height="32" /> Ackbox
        </h1>
        {ended ? <p role="status">{texts.value.signIn.ended}</p> : null}
        <label class="field">
          {texts.value.signIn.key}
          <input
            ref={input}
            type="password"
            autocomplete="current-password"
            required
            value={key}
            placeholder="ack_…"
            onInput={event => setKey(event.currentTarget.value)}
          />
        </label>
        {error ? <Failed error={error} /> : null}
        <button type="submit" class="main">
          {texts.value.signIn.go}
        </button>
        <p class="quiet">{texts.value.signIn.note}</p>
        <div class="acts">
          <Looks />
        </div>
      </form>
    </main>
  )
}
