// Takes long: npm run test:long.
import type { Page } from 'playwright-core'
import t from 'tap'
import { scopes } from '../../src/db/api-keys.ts'
import { failedTasks, signIn } from '../support/dashboard.ts'

t.setTimeout(600_000)

t.test('the session of a page that stays open', async t => {
  const on = await failedTasks(t, 2)
  if (!on) return
  const { page, url, sql, admin } = on
  const second = await on.keyFor('ops-2', scopes)
  const looker = await on.keyFor('looker', ['ops:read'])
  const who = (of: Page, name: string) => of.locator('.who', { hasText: name }).waitFor()
  const seenAgain = "document.dispatchEvent(new Event('visibilitychange'))"
  /** A sign-in in the first tab, without a moment in which there is no session. */
  const replaceSession = (key: string) =>
    page.evaluate(
      `fetch('/session', { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ key: '${key}' }) }).then(answer => answer.json())`
    )
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
})
