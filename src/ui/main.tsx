import { signal } from '@preact/signals'
import { render } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { readSession } from './api.ts'
import { closeQuestion, Question, Said, say } from './acts.tsx'
import { focusHeadingIfLost, focusNextHeading } from './focus.ts'
import { Failed, Link } from './parts.tsx'
import { AlarmsPage } from './pages/alarms.tsx'
import { AuditPage } from './pages/audit.tsx'
import { DownstreamsPage } from './pages/downstreams.tsx'
import { FailuresPage } from './pages/failures.tsx'
import { HeldPage } from './pages/held.tsx'
import { KeysPage } from './pages/keys.tsx'
import { NodesPage } from './pages/nodes.tsx'
import { NoPage } from './pages/no-page.tsx'
import { OperationPage } from './pages/operation.tsx'
import { OverviewPage } from './pages/overview.tsx'
import { TaskPage } from './pages/task.tsx'
import { TasksPage } from './pages/tasks.tsx'
import { TestTaskPage } from './pages/test-task.tsx'
import { places, useKeyboard } from './keyboard.ts'
import type { Texts } from './texts/en.ts'
import { forget, listen, live, stopListening } from './live.ts'
import { Looks, SignIn, SignOut } from './sign-in.tsx'
import { currentKey, here, language, may, page, param, session, speak, texts, theme } from './state.ts'

type PageName = keyof Texts['pages']
/** The pages by their path, each with the scopes of which it needs one. */
const pages: Record<PageName, { view: () => preact.JSX.Element; scopes: string[]; inMenu?: boolean }> = {
  overview: { view: OverviewPage, scopes: ['ops:read'], inMenu: true },
  downstreams: { view: DownstreamsPage, scopes: ['ops:read'], inMenu: true },
  tasks: { view: TasksPage, scopes: ['tasks:read', 'ops:read'], inMenu: true },
  task: { view: TaskPage, scopes: ['tasks:read', 'ops:read'] },
  test: { view: TestTaskPage, scopes: ['ops:read'] },
  failures: { view: FailuresPage, scopes: ['ops:read'], inMenu: true },
  operation: { view: OperationPage, scopes: ['ops:read'] },
  held: { view: HeldPage, scopes: ['ops:read'], inMenu: true },
  alarms: { view: AlarmsPage, scopes: ['ops:read'], inMenu: true },
  nodes: { view: NodesPage, scopes: ['ops:read'], inMenu: true },
  keys: { view: KeysPage, scopes: ['ops:write'], inMenu: true },
  audit: { view: AuditPage, scopes: ['ops:read'], inMenu: true }
}

/** The audit names tasks of all messageCodes, so that the API refuses it to keys of some. */
const isMine = (name: PageName): boolean =>
  pages[name].scopes.some(may) && (name !== 'audit' || session.value.messageCodes === null)

/** After the end of the session the page is kept, with all that was typed, but not shown. */
function Root() {
  const { signedIn, name } = session.value
  const lang = language.value
  const colors = theme.value
  useEffect(() => {
    document.documentElement.lang = lang === 'zh' ? 'zh-CN' : 'en'
    document.documentElement.dataset['theme'] = colors
  }, [lang, colors])
  if (away.value) return <Away error={away.value} />
  if (name === undefined) return <SignIn />
  return (
    <>
      {signedIn ? null : <SignIn ended />}
      <div key={currentKey.value} hidden={!signedIn}>
        <App />
      </div>
      <Said />
    </>
  )
}

function App() {
  const { signedIn } = session.value
  const mine = (Object.keys(pages) as PageName[]).filter(isMine)
  const name = mine.find(one => one === page.value) ?? mine[0]
  const [help, setHelp] = useState(false)
  const taskNo = name === 'task' ? param('no') : ''
  const hears = may('tasks:read') || may('ops:read')
  useEffect(() => {
    if (!signedIn) return
    const title = name === undefined ? texts.value.signIn.noPage : texts.value.pages[name]
    document.title = `${title}${taskNo === '' ? '' : ` ${taskNo}`} · Ackbox`
  })
  useEffect(() => {
    if (signedIn && hears) listen(taskNo)
    else stopListening()
  }, [signedIn, taskNo, hears])
  useEffect(() => forget, [])
  const wasSignedIn = useRef(signedIn)
  useEffect(() => {
    if (signedIn && !wasSignedIn.current) focusHeadingIfLost()
    wasSignedIn.current = signedIn
  }, [signedIn])
  // On a phone the menu is wider than the screen, so the current page is scrolled into view.
  useEffect(() => {
    document.querySelector('nav [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' })
  }, [name, signedIn])
  useKeyboard(() => setHelp(before => !before))
  const View = name === undefined ? NoPage : pages[name].view
  return (
    <>
      <a class="skip" href="#content">
        {texts.value.common.skip}
      </a>
      <header>
        <Link to="/ui/" class="brand">
          <img src="/ui/icon.svg" alt="" width="24" height="24" /> Ackbox
        </Link>
        <nav aria-label="Ackbox">
          {mine
            .filter(one => pages[one].inMenu)
            .map(one => (
              <Link key={one} to={`/ui/${one}`} aria-current={one === name ? 'page' : undefined}>
                {texts.value.pages[one]}
              </Link>
            ))}
        </nav>
        <div class="corner">
          {hears ? (
            <span
              class={live.value ? 'live' : 'live gap'}
              title={live.value ? texts.value.common.live : texts.value.common.gap}
              role="img"
              aria-label={live.value ? texts.value.common.live : texts.value.common.gap}
            />
          ) : null}
          <Looks />
          <span class="quiet who">{session.value.name}</span>
          {session.value.auth ? <SignOut /> : null}
        </div>
      </header>
      <main id="content" key={`${name} ${taskNo}`}>
        <View />
      </main>
      <Question />
      {help && signedIn ? <Help pages={mine} close={() => setHelp(false)} /> : null}
    </>
  )
}

/** The error while the session cannot be read. */
const away = signal<Error | undefined>(undefined)
function Away({ error }: { error: Error }) {
  return (
    <main class="sign-in">
      <Failed error={error} />
      <p class="quiet" role="status">
        {texts.value.signIn.again}
      </p>
    </main>
  )
}

function Help({ pages: mine, close }: { pages: readonly PageName[]; close: () => void }) {
  const ref = useRef<HTMLDialogElement>(null)
  useEffect(() => {
    ref.current?.showModal()
  }, [])
  const shortcuts = texts.value.shortcuts.filter(([keys]) => {
    const place = keys.startsWith('g ') ? places[keys.slice(2)] : undefined
    return place === undefined || mine.some(one => one === place)
  })
  return (
    <dialog ref={ref} onClose={close} aria-labelledby="help">
      <h2 id="help">{texts.value.common.keyboard}</h2>
      <dl class="pairs">
        {shortcuts.map(([keys, meaning]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      <div class="acts end">
        <button type="button" onClick={() => ref.current?.close()}>
          {texts.value.common.close}
        </button>
      </div>
    </dialog>
  )
}

addEventListener('popstate', () => {
  closeQuestion()
  here.value = new URL(location.href)
  focusNextHeading()
})
const langParam = param('lang')
if (langParam === 'en' || langParam === 'zh') speak(langParam)
const beginAgainMs = 3_000
async function begin(): Promise<void> {
  try {
    await readSession()
    away.value = undefined
  } catch (error) {
    // The session is unknown, and the user may be signed in, so the page does not request a key.
    away.value = error as Error
    setTimeout(() => void begin(), beginAgainMs)
  }
}
await begin()
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) readSession().catch(() => {})
})
let lastName: string | undefined
currentKey.subscribe(() => {
  const { name } = session.value
  if (name !== undefined && lastName !== undefined) say(texts.value.signIn.other(name))
  lastName = name
})
render(<Root />, document.getElementById('app') as HTMLElement)
