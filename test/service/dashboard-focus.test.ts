// Where the keyboard and the screen reader are after each step.
// Takes long: npm run test:long.
import type { Route } from 'playwright-core'
import t from 'tap'
import { failedTasks, signIn } from '../support/dashboard.ts'
import { until } from '../support/until.ts'

t.test('the focus goes along: to the heading of the next page, and not back to the first row', async t => {
  const on = await failedTasks(t, 1)
  if (!on) return
  const { page, wrong, url, call, downstream } = on
  const tasks = Array.from({ length: 119 }, (_, n) => ({
    taskNo: `later-${n}`,
    messageCode: 'test.plain',
    messageBody: { n },
    delay: 3_600_000
  }))
  t.equal((await call('POST', '/tasks/batch', { tasks })).status, 200)
  const heading = async (title: string) =>
    await page.locator('h1:focus', { hasText: new RegExp(`^${title}$`) }).waitFor()
  const rows = page.locator('tr.row')
  const row = (n: number) => page.locator(`tr.row:nth-child(${n}):focus`)
  const dialog = page.locator('dialog[open]')
  const button = (name: string) => page.getByRole('button', { name, exact: true })
  /** Holds the changes by this path until `open` is called, which returns how many they were. */
  const hold = async (path: string) => {
    const held: Route[] = []
    await page.route(path, async route => {
      if (route.request().method() === 'GET') await route.continue()
      else held.push(route)
    })
    return {
      held: () => until('it is asked', () => held.length > 0),
      async open() {
        for (const route of held) await route.continue()
        await page.unroute(path)
        return held.length
      }
    }
  }

  await t.test(
    'a page that is opened says its name, and one that is loaded leaves the focus alone',
    async t => {
      await signIn(page, url, on.admin)
      await heading('Overview')
      await page.goto(`${url}/ui/failures`)
      await page.locator('li.group').waitFor()
      t.equal(await page.evaluate('document.activeElement === document.body'), true)
      await page.keyboard.press('g')
      await page.keyboard.press('h')
      await heading('Held')
      await page.locator('nav >> text=Alarms').click()
      await heading('Alarms')
      await page.goBack()
      await heading('Held')
    }
  )

  await t.test('More keeps the focus and the place, and the way back leads to as many rows', async t => {
    const size = page.viewportSize()
    await page.setViewportSize({ width: 1280, height: 600 })
    await page.goto(`${url}/ui/tasks`)
    const more = page.locator('button:focus', { hasText: /^More$/ })
    await page.getByRole('button', { name: 'More', exact: true }).focus()
    await page.keyboard.press('Enter')
    await rows.nth(99).waitFor()
    await more.waitFor()
    await page.keyboard.press('k')
    await row(100).waitFor()
    await page.getByRole('button', { name: 'More', exact: true }).focus()
    await page.keyboard.press('Enter')
    await page.locator('p:focus', { hasText: 'The list ends here.' }).waitFor()
    const last = await rows.nth(99).boundingBox()
    t.ok(last && last.y > 0 && last.y < 600, 'the reader is still at the last row read')
    if (size) await page.setViewportSize(size)
    await page.keyboard.press('j')
    await row(120).waitFor()
    await page.keyboard.press('k')
    await row(119).waitFor()
    await page.keyboard.press('Enter')
    await heading('later-\\d+')
    await page.goBack()
    await heading('Tasks')
    await rows.nth(119).waitFor()
    await page.keyboard.press('j')
    await row(1).waitFor()
  })

  await t.test('the end of a list is told only of the list whose More was pressed', async t => {
    await page.goto(`${url}/ui/tasks?q=from:30d`)
    await button('More').click()
    await rows.nth(99).waitFor()
    await button('More').click()
    const end = page.getByText('The list ends here.')
    await end.waitFor()
    await page.locator('input[type=search]').fill('status:FAILED')
    await page.locator('input[type=search]').press('Enter')
    await rows.nth(1).waitFor({ state: 'detached' })
    t.equal(await end.count(), 0)
  })

  await t.test('a question about a task names it, and the way back closes it', async t => {
    const asked = async (taskNo: string, name: string) => {
      await page.goto(`${url}/ui/task?no=${taskNo}`)
      await page.getByRole('button', { name }).first().click()
      const title = await dialog.locator('h2').innerText()
      await page.keyboard.press('Escape')
      await dialog.waitFor({ state: 'hidden' })
      return title
    }
    t.equal(await asked('order-0', 'Mark as handled'), 'Mark as handled: order-0')
    t.equal(await asked('later-0', 'Delete'), 'Delete: later-0')
    await page.goto(`${url}/ui/tasks?q=status:FAILED`)
    await page.locator('td a', { hasText: 'order-0' }).click()
    await heading('order-0')
    await button('Redeliver').click()
    t.equal(await dialog.locator('h2').innerText(), 'Redeliver: order-0')
    await page.goBack()
    await heading('Tasks')
    t.equal(await dialog.count(), 0)
  })

  await t.test('a question whose row disappears leaves the focus at the heading', async t => {
    const plain = { messageCode: 'test.plain', messageBody: { n: 1 }, retryTimes: 1 }
    for (const orderingKey of ['by-1', 'by-2'])
      t.equal((await call('POST', '/tasks', { taskNo: orderingKey, orderingKey, ...plain })).status, 201)
    await until('the keys are held', async () => {
      const { body } = await call('GET', '/keys?held=true')
      return (body['keys'] as object[]).length === 2
    })
    await page.goto(`${url}/ui/held`)
    const held = (key: string) => page.locator('tr', { hasText: key })
    const release = async (key: string) => {
      await held(key).getByRole('button', { name: 'Release' }).press('Enter')
      await dialog.waitFor()
    }
    await release('by-1')
    await dialog.locator('button[type=submit]').press('Enter')
    await held('by-1').waitFor({ state: 'detached' })
    await heading('Held')
    await release('by-2')
    t.equal((await call('POST', '/keys/plain/by-2/release')).status, 200)
    await held('by-2').waitFor({ state: 'detached' })
    await page.keyboard.press('Escape')
    await heading('Held')
  })

  await t.test('a button whose change runs keeps the focus, and runs it once', async t => {
    const busy = (within: string) =>
      page.locator(`${within} button[type=submit][aria-disabled=true]:focus`).waitFor()
    await page.goto(`${url}/ui/keys`)
    const making = await hold('**/api-keys')
    await page.locator('form.card input').first().fill('made')
    await button('Make a key').press('Enter')
    await making.held()
    await busy('form')
    await page.keyboard.press('Enter')
    t.equal(await making.open(), 1)
    await page.locator('pre', { hasText: 'ack_' }).waitFor()

    await page.goto(`${url}/ui/task?no=later-1`)
    await button('Delete: later-1').press('Enter')
    const deleting = await hold('**/tasks/later-1')
    await dialog.locator('button[type=submit]').press('Enter')
    await deleting.held()
    await busy('dialog')
    await page.keyboard.press('Enter')
    t.equal(await deleting.open(), 1)
    await dialog.waitFor({ state: 'hidden' })
    await heading('later-1')
  })

  await t.test('after the end of the session the focus is in the form, and then at the heading', async () => {
    await page.goto(`${url}/ui/nodes`)
    await page.locator('tbody tr').first().waitFor()
    await page.context().clearCookies()
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await page.locator('input[type=password]:focus').fill(on.admin)
    await page.keyboard.press('Enter')
    await heading('Nodes')
    // A read of the page may have met the end of the session first.
    wrong.splice(0, wrong.length, ...wrong.filter(text => !text.includes('401')))
  })

  await t.test('a question that leads to another page leaves the focus at its heading', async () => {
    downstream.mend()
    await page.goto(`${url}/ui/failures`)
    await page.locator('li.group').first().waitFor()
    await page.keyboard.press('j')
    await page.keyboard.press('r')
    await page.locator('dialog[open]').waitFor()
    await page.locator('dialog[open] button[type=submit]').press('Enter')
    await heading('Redelivery')
  })
  t.same(wrong, [])
})
