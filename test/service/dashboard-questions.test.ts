// Takes long: npm run test:long.
import type { Route } from 'playwright-core'
import t from 'tap'
import { failedTasks, signIn } from '../support/dashboard.ts'
import { until } from '../support/until.ts'

t.setTimeout(600_000)

t.test('what the dashboard asks before it changes something', async t => {
  const on = await failedTasks(t, 2)
  if (!on) return
  const { page, wrong, url, downstream } = on
  downstream.break(() => 'another cause')
  await on.fail(['other-1'])
  await signIn(page, url, on.admin)
  const goTo = async (path: string) => {
    await page.goto(`${url}/ui/${path}`)
    await page.locator('main h1').waitFor()
  }
  const dialog = page.locator('dialog[open]')
  const title = dialog.locator('h2')
  const cancel = async () => {
    await dialog.locator('button[type=button]').click()
    await dialog.waitFor({ state: 'hidden' })
  }
  const group = (text: string) => page.locator('li.group', { hasText: text })
  /** Holds the requests to this path until `open` is called; then they go on as `end` says. */
  const gate = async (path: string) => {
    const held: Route[] = []
    let isOpen = false
    await page.route(path, async route => {
      if (isOpen) await route.continue()
      else held.push(route)
    })
    return {
      held: () => until('it is asked', async () => held.length > 0),
      count: () => held.length,
      passLater() {
        isOpen = true
      },
      async open(end: (route: Route) => Promise<void> = route => route.continue()) {
        isOpen = true
        for (const route of held) await end(route)
      }
    }
  }

  const pause = async () => {
    await page.getByRole('button', { name: 'Pause: plain' }).click()
    await dialog.locator('button[type=submit]').click()
  }
  const said = (text: string) => page.locator('.said', { hasText: text }).waitFor()

  await t.test(
    'a question that was closed while it ran reports its success, and closes no other',
    async t => {
      await goTo('downstreams')
      const pausing = await gate('**/downstreams/plain/pause')
      await pause()
      await pausing.held()
      t.equal(
        await dialog.locator('button[type=button]').innerText(),
        'Close',
        'it can no longer be cancelled'
      )
      await page.keyboard.press('Escape')
      await dialog.waitFor({ state: 'hidden' })
      await page.getByRole('button', { name: 'Change limits: plain' }).click()
      await dialog.locator('input[name=perSecond]').fill('30')
      t.ok(await dialog.locator('button[type=submit]').isEnabled(), 'it is another question')
      await pausing.open()
      await page.locator('tr .mark', { hasText: 'paused' }).waitFor()
      await said('Pause: plain: done.')
      t.equal(await dialog.locator('input[name=perSecond]').inputValue(), '30')
      await cancel()
      await page.getByRole('button', { name: 'Resume: plain' }).click()
      await page.getByRole('button', { name: 'Pause: plain' }).waitFor()
    }
  )

  await t.test('its error is shown as a message, and not in the next question', async t => {
    await goTo('downstreams')
    const pausing = await gate('**/downstreams/plain/pause')
    await pause()
    await pausing.held()
    await cancel()
    await page.getByRole('button', { name: 'Change limits: plain' }).click()
    await title.waitFor()
    await pausing.open(route =>
      route.fulfill({
        status: 503,
        contentType: 'application/problem+json',
        body: JSON.stringify({ status: 503, code: 'UNAVAILABLE', title: 'The database is away' })
      })
    )
    await said('Pause: plain: The database is away')
    t.equal(await dialog.locator('[role=alert]').count(), 0)
    await cancel()
    wrong.splice(0, wrong.length, ...wrong.filter(text => !text.includes('503')))
  })

  await t.test('a bulk redelivery whose question was closed leaves the page where it is', async t => {
    await goTo('failures')
    await group('another cause').locator('button.main').click()
    await title.waitFor()
    const redelivering = await gate('**/tasks/redeliver')
    await dialog.locator('button[type=submit]').click()
    await redelivering.held()
    await cancel()
    await page.locator('nav >> text=Nodes').click()
    await redelivering.open()
    await said('done.')
    t.match(page.url(), /\/ui\/nodes$/)
  })

  t.same(wrong, [])
})
