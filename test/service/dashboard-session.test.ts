// Takes long: npm run test:long.
import type { Page } from 'playwright-core'
import t from 'tap'
import { scopes } from '../../src/db/api-keys.ts'
import { failedTasks, signIn } from '../support/dashboard.ts'

t.setTimeout(2_400_000)

t.test('the session of a page that stays open', async t => {
  const on = await failedTasks(t, 2)
  if (!on) return
  const { page, url, sql, admin } = on
  const second = await on.keyFor('ops-2', scopes)
  const looker = await on.keyFor('looker', ['ops:read'])
  const form = page.locator('input[type=password]')
  const dialog = page.locator('dialog[open]')
  const who = (of: Page, name: string) => of.locator('.who', { hasText: name }).waitFor()
  const seenAgain = "document.dispatchEvent(new Event('visibilitychange'))"
  /** The session is gone, as after its 12 hours, and the page is seen again. */
  const endSession = async () => {
    await page.context().clearCookies()
    await page.evaluate(seenAgain)
  }
  /** A sign-in in the first tab, without a moment in which there is no session. */
  const replaceSession = (key: string) =>
    page.evaluate(
      `fetch('/session', { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ key: '${key}' }) }).then(answer => answer.json())`
    )
  const signInAgain = async (key: string) => {
    await page.getByText('The session has ended.').waitFor()
    await form.fill(key)
    await page.locator('.sign-in button[type=submit]').click()
    await form.waitFor({ state: 'hidden' })
  }
  const goTo = async (path: string) => {
    await page.goto(`${url}/ui/${path}`)
    await page.locator('main h1').waitFor()
  }

  await t.test('a new sign-in in one tab leaves the buttons of the others working', async t => {
    await signIn(page, url, admin)
    const other = await page.context().newPage()
    const button = (name: string) => other.getByRole('button', { name })
    await other.goto(`${url}/ui/downstreams`)
    await button('Pause: plain').waitFor()
    await replaceSession(admin)
    await button('Pause: plain').click()
    await other.locator('dialog[open] button[type=submit]').click()
    await button('Resume: plain').waitFor()

    await replaceSession(second)
    await who(other, 'ops-1')
    await button('Resume: plain').click()
    await other
      .getByText('Nothing was done: this browser is now signed in with the key ops-2.')
      .first()
      .waitFor()
    await who(other, 'ops-2')
    const resumed = () => sql`select who from audit where what = 'downstream.resume'`
    t.same(await resumed(), [])
    await button('Resume: plain').click()
    await button('Pause: plain').waitFor()
    t.same(await resumed(), [{ who: 'ops-2' }])

    await button('Pause: plain').click()
    await replaceSession(admin)
    await other.locator('dialog[open] button[type=submit]').click()
    await other.getByText('Pause: plain: Nothing was done').waitFor()
    await who(other, 'ops-1')
    t.equal(await other.locator('dialog[open]').count(), 0, 'the question of another key')

    await replaceSession(looker)
    await other.evaluate(seenAgain)
    await who(other, 'looker')
    t.equal(await button('Pause: plain').count(), 0, 'its key may not')
    await other.close()
  })

  await t.test('language and theme change at once, also before a sign-in', async () => {
    const html = (attributes: string) => page.locator(`html${attributes}`).waitFor()
    const press = (name: string) => page.getByRole('button', { name, exact: true }).click()
    const choose = async () => {
      await press('中文')
      await html('[lang=zh-CN]')
      await press('EN')
      await html('[lang=en]')
      await press('Theme: auto')
      await html('[data-theme=dark]')
      await press('Theme: dark')
      await html('[data-theme=light]')
      await press('Theme: light')
      await html('[data-theme=auto]')
    }
    await page.context().clearCookies()
    await page.goto(`${url}/ui/nodes`)
    await form.waitFor()
    await choose()
    await signIn(page, url, admin)
    await goTo('nodes')
    await choose()
  })

  await t.test('a sign-in whose cookie the browser drops says so, and shows no page', async t => {
    await page.context().clearCookies()
    await page.goto(`${url}/ui/nodes`)
    // As it drops a Secure cookie that comes over plain http.
    await page.route('**/session', async route => {
      if (route.request().method() !== 'POST') return await route.continue()
      await route.fulfill({
        status: 201,
        json: { signedIn: true, auth: true, version: '1', name: 'ops-1', scopes: ['ops:read'], csrf: 'x' }
      })
    })
    await form.fill(admin)
    await page.locator('button[type=submit]').click()
    await page.locator('[role=alert]', { hasText: 'The browser did not keep the cookie' }).waitFor()
    t.equal(await page.locator('header').count(), 0)
    t.equal(await page.getByText('The session has ended.').count(), 0)
    await page.unroute('**/session')
  })

  await t.test('an edited body outlives the end of the session', async t => {
    await signIn(page, url, admin)
    await goTo('task?no=order-1')
    await page.getByRole('button', { name: 'Edit and send as new' }).click()
    const body = page.locator('textarea')
    await body.fill('{"n": 2}')
    await endSession()
    const send = page.getByRole('button', { name: 'Send as new', exact: true })
    await form.waitFor()
    t.equal(await body.isVisible(), false, 'nothing is shown without a session')
    for (const key of ['g', 'n']) await page.keyboard.press(key)
    await signInAgain(admin)
    t.equal(await body.inputValue(), '{"n": 2}')
    await send.click()
    await page.locator('h1', { hasText: 'order-1-2' }).waitFor()
  })

  await t.test('an open question waits for the same key, and no other key sees it', async t => {
    await signIn(page, url, admin)
    await goTo('task?no=order-0')
    await page.getByRole('button', { name: 'Redeliver', exact: true }).click()
    await dialog.locator('input[type=checkbox]').check()
    await page.context().clearCookies()
    // The page may have noticed first: then the question waits already.
    await page.evaluate("document.querySelector('dialog[open] button[type=submit]')?.click()")
    await signInAgain(admin)
    await dialog.waitFor()
    t.ok(await dialog.locator('input[type=checkbox]').isChecked(), 'as it was chosen')
    await endSession()
    await signInAgain(second)
    await who(page, 'ops-2')
    await page.locator('h1', { hasText: 'order-0' }).waitFor()
    t.equal(await dialog.count(), 0)
    await page.getByRole('button', { name: 'Redeliver', exact: true }).click()
    t.equal(await dialog.locator('input[type=checkbox]').isChecked(), false)
    const sent = page.waitForRequest('**/redeliver')
    await dialog.locator('button[type=submit]').click()
    t.equal((await sent).postData(), '{}', 'what was chosen before is forgotten')
    await dialog.waitFor({ state: 'hidden' })
  })

  await t.test('a page that only listens says so when its session has ended', async () => {
    await signIn(page, url, second)
    await page.route('**/events*', route => route.fulfill({ status: 401, body: '' }))
    await goTo('audit')
    await page.locator('.live.gap').waitFor()
    await page.context().clearCookies()
    await page.unroute('**/events*')
    await signInAgain(second)
    await page.locator('tbody tr', { hasText: 'session.created' }).first().waitFor()
    await page.locator('.live:not(.gap)').waitFor()
  })

  const keyName = page.locator('form.card input').first()
  const scopesOf = (name: string) =>
    sql`select scopes, message_codes from api_key where name = ${name} order by created_at`

  await t.test('a key without ops:read makes keys, and a double press makes one', async t => {
    await signIn(page, url, await on.keyFor('writer', ['ops:write', 'tasks:read']))
    await goTo('keys')
    await page.getByLabel('tasks:read').check()
    await keyName.fill('twice')
    await page.getByRole('button', { name: 'Make a key' }).evaluate((button: { click: () => void }) => {
      button.click()
      button.click()
    })
    await page.locator('pre', { hasText: 'ack_' }).first().waitFor()
    await page.locator('form.card button[type=submit][aria-disabled=false]').waitFor()
    t.same(await scopesOf('twice'), [{ scopes: ['tasks:read'], message_codes: null }])
    await keyName.fill('next')
    await page.getByRole('button', { name: 'Make a key' }).click()
    await page.locator('pre', { hasText: 'ack_' }).nth(1).waitFor()
    const made = page.locator('section[role=status]')
    t.match(await made.innerText(), /next key_\w+\s+ack_.*twice key_\w+\s+ack_/s)
    const [row] = await sql<{ id: string }[]>`select id from api_key where name = 'next'`
    t.match(await made.innerText(), `next ${row?.id}`, 'the id that the audit shows')
    await page.getByRole('button', { name: `Revoke: next · ${row?.id}`, exact: true }).waitFor()
  })

  await t.test('a key of some messageCodes is told that the keys that it makes have the same', async t => {
    await signIn(page, url, await on.keyFor('bound', scopes, ['test.receipt']))
    await goTo('keys')
    await page.getByText('empty: the same as your key').waitFor()
    await keyName.fill('inherits')
    await page.getByRole('button', { name: 'Make a key' }).click()
    await page.locator('pre', { hasText: 'ack_' }).waitFor()
    t.same(await scopesOf('inherits'), [{ scopes: ['ops:read'], message_codes: ['test.receipt'] }])
  })
})
