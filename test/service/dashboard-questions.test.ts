// Takes long: npm run test:long.
import type { Route } from 'playwright-core'
import t from 'tap'
import { failedTasks, signIn } from '../support/dashboard.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

t.test('what the dashboard asks before it changes something', async t => {
  const on = await failedTasks(t, 2)
  if (!on) return
  const { page, wrong, url, sql, downstream, call } = on
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
  const ready = (text: string) => group(text).locator('button.main:enabled').waitFor()
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

  await t.test('a bulk redelivery names its group; a late count replaces no question', async t => {
    await goTo('failures')
    const first = await gate('**/tasks/redeliver')
    await group('warehouse').locator('button.main').click()
    await first.held()
    first.passLater()
    await group('another cause').locator('button.main').click()
    await title.waitFor()
    t.equal(await title.innerText(), 'Redeliver: plain all tries failed')
    t.match(await dialog.innerText(), /another cause\s+1 FAILED/)
    await first.open()
    await ready('warehouse')
    t.match(await dialog.innerText(), /another cause\s+1 FAILED/, 'the question that was open')
    await cancel()

    const second = await gate('**/tasks/redeliver')
    await group('warehouse').locator('button.main').click()
    await second.held()
    await page.locator('nav >> text=Nodes').click()
    await page.locator('h1', { hasText: 'Nodes' }).waitFor()
    const answered = page.waitForResponse('**/tasks/redeliver')
    await second.open()
    await (await answered).finished()
    await page.evaluate("fetch('/session').then(answer => answer.text())")
    t.equal(await dialog.count(), 0, 'no question about it on another page')
  })

  await t.test('r counts a group once, however often it is pressed', async t => {
    await goTo('failures')
    await group('another cause').focus()
    const counts = await gate('**/tasks/redeliver')
    for (let n = 0; n < 3; n++) await page.keyboard.press('r')
    await counts.held()
    await page.evaluate("fetch('/session').then(answer => answer.text())")
    t.equal(counts.count(), 1)
    await counts.open()
    await title.waitFor()
    await cancel()
  })

  await t.test('a question says what it is about', async t => {
    await call('POST', '/tasks', {
      taskNo: 'key-1',
      messageCode: 'test.plain',
      messageBody: { n: 1 },
      retryTimes: 1,
      orderingKey: 'order-7'
    })
    await sql`
      insert into outbox_rejected (id, task_no, created_by, problem)
      values (gen_random_uuid(), 'rejected-1', 'sql:shop', '{"code": "INVALID"}')`
    const asked = async (name: RegExp) => {
      await page.locator('main button', { hasText: name }).first().click()
      await title.waitFor()
      const text = await title.innerText()
      await cancel()
      return text
    }
    await goTo('failures')
    t.equal(await asked(/^Archive$/), 'Archive: plain all tries failed')
    await until('the key is held', async () => {
      const { body } = await call('GET', '/keys?held=true')
      return (body['keys'] as object[]).length === 1
    })
    await goTo('held')
    t.equal(await asked(/^Release$/), 'Release: order-7 · plain · key-1')
    t.equal(await asked(/^Skip$/), 'Skip: key-1 · plain')
    t.equal(await asked(/^Remove$/), 'Remove: rejected-1')
  })

  await t.test('a confirm changes only what its question showed, as it was then', async t => {
    const statusOf = async (taskNo: string) => (await call('GET', `/tasks/${taskNo}`)).body['status']
    const confirm = async (said: string) => {
      if ((await dialog.locator('input').count()) > 0) await dialog.locator('input').fill('not wanted')
      await dialog.locator('button[type=submit]').click()
      await dialog.locator('[role=alert]', { hasText: said }).waitFor()
      await cancel()
    }
    const ask = async (name: string) => {
      await page.locator('main button', { hasText: name }).first().click()
      await title.waitFor()
    }
    const next = { taskNo: 'key-2', messageCode: 'test.plain', messageBody: { n: 1 }, orderingKey: 'order-7' }
    t.equal((await call('POST', '/tasks', { ...next, retryTimes: 1 })).status, 201)

    // Nothing is sent until the end, so what is redelivered stays SENDING.
    t.equal((await call('POST', '/downstreams/plain/pause')).status, 200)
    await goTo('held')
    await ask('Skip')
    t.equal((await call('POST', '/tasks/key-1/redeliver')).status, 200)
    await confirm('No delivery of this task is open or FAILED')
    t.equal(await statusOf('key-1'), 'SENDING', 'somebody has redelivered it')
    await goTo('task?no=other-1')
    await page.getByRole('button', { name: 'Mark as handled', exact: true }).click()
    await title.waitFor()
    t.equal((await call('POST', '/tasks/other-1/redeliver')).status, 200)
    await confirm('No delivery of this task is open or FAILED')
    t.equal(await statusOf('other-1'), 'SENDING')

    t.equal((await call('POST', '/downstreams/plain/resume')).status, 200)
    await until('both FAILED again', async () => {
      const all = await Promise.all(['key-1', 'other-1'].map(statusOf))
      return all.every(status => status === 'FAILED')
    })
    await goTo('held')
    await ask('Release')
    t.equal((await call('POST', '/keys/plain/order-7/release')).status, 200)
    await until('the next one holds the key', async () => (await statusOf('key-2')) === 'FAILED')
    await confirm('it is not held by this task')
    const { body } = await call('GET', '/keys?held=true')
    t.match(body['keys'], [{ head: { taskNo: 'key-2' } }], 'nobody has seen that one')
    wrong.splice(0, wrong.length, ...wrong.filter(text => !text.includes('409')))
  })

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
