// Takes long: npm run test:long.
import t from 'tap'
import { failedTasks, signIn, signOut } from '../support/dashboard.ts'
import { only } from '../support/only.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

t.test('what an operator does with single tasks, groups and downstreams', async t => {
  const on = await failedTasks(t, 3)
  if (!on) return
  const { page, wrong, url, sql, downstream, call } = on
  const goTo = async (path: string) => {
    await page.goto(`${url}/ui/${path}`)
    await page.locator('main h1').waitFor()
  }
  const press = async (...keys: string[]) => {
    for (const key of keys) await page.keyboard.press(key)
  }

  await t.test('a producer who may look is offered what its key may do, and nothing else', async t => {
    await call('POST', '/tasks', { taskNo: 'waits-0', messageCode: 'test.plain', messageBody: { n: 1 } })
    await until('it waits', async () => {
      const { body } = await call('GET', '/deliveries?phase=WAITING')
      return (body['deliveries'] as object[]).length === 1
    })
    await call('POST', '/downstreams/plain/pause')
    await signIn(page, url, await on.keyFor('shop', ['tasks:write', 'tasks:read', 'ops:read']))
    const offered = async (path: string) => {
      await goTo(path)
      await page.locator('.timeline').waitFor()
      return await page.locator('main button').allInnerTexts()
    }
    const failed = await offered('task?no=order-1')
    t.ok(failed.includes('Redeliver') && failed.includes('Edit and send as new'), failed.join())
    t.notOk(failed.includes('Mark as handled'), 'that needs ops:write')
    const waits = await offered('task?no=waits-0')
    t.ok(waits.includes('Delete'), waits.join())
    t.notOk(waits.includes('Deliver now'), 'that needs ops:write')
    await signOut(on)
    await signIn(page, url, on.admin)
    t.ok((await offered('task?no=waits-0')).includes('Deliver now'))
    await call('POST', '/downstreams/plain/resume')
  })

  await t.test('g goes to each page of the menu, j to a group, and r asks about that group', async t => {
    for (const [key, title] of Object.entries({ n: 'Nodes', k: 'Keys', u: 'Audit', f: 'Failures' })) {
      await press('g', key)
      await page.locator('h1', { hasText: title }).waitFor()
    }
    await call('POST', '/tasks/waits-0/settle', { status: 'DELETED', reason: 'not needed' })
    downstream.break(() => 'another cause')
    await call('POST', '/tasks', {
      taskNo: 'other-1',
      messageCode: 'test.plain',
      messageBody: { n: 1 },
      retryTimes: 1
    })
    const second = page.locator('li.group').nth(1)
    await second.waitFor()
    const lines = await page.locator('li.group .line').allInnerTexts()
    await press('j', 'j')
    await page.locator('li.group:nth-child(2):focus').waitFor()
    await press('r')
    const question = page.locator('dialog[open]')
    await question.waitFor()
    await press('Escape')
    await question.waitFor({ state: 'hidden' })
    await page
      .locator('li.group', { hasText: 'another cause' })
      .locator('a', { hasText: 'Show tasks' })
      .click()
    await page.locator('tbody tr', { hasText: 'other-1' }).waitFor()
    t.equal(await page.locator('tbody tr').count(), 1, 'its own and no others')
    await page.goBack()
    await second.waitFor()
    await press('j', 'j')
    await page.locator('li.group:nth-child(2):focus').waitFor()
    await press('r')
    await question.waitFor()
    t.match(await question.innerText(), lines[1] === 'another cause' ? /\b1 FAILED/ : /\b3 FAILED/)
    await press('Escape')
    await question.waitFor({ state: 'hidden' })
  })

  await t.test('a proxy answers 502 for a moment: the stream is opened again, and all is read', async t => {
    let refused = 0
    const isGone = () => refused < 2
    await page.route('**/events*', async route => {
      if (!isGone()) return await route.continue()
      refused++
      await route.fulfill({ status: 502, body: 'bad gateway' })
    })
    await goTo('audit')
    await page.locator('.live.gap').waitFor()
    await call('POST', '/downstreams/plain/pause')
    await page.locator('.live:not(.gap)').waitFor()
    t.equal(refused, 2)
    await page.locator('tbody tr', { hasText: 'downstream.pause' }).nth(1).waitFor()
    await page.unroute('**/events*')
    await call('POST', '/downstreams/plain/resume')
    wrong.splice(0, wrong.length, ...wrong.filter(text => !text.includes('502')))
  })

  await t.test(
    'a page in the background holds no connection, and reads all when it is seen again',
    async () => {
      const show = async (isHidden: boolean) =>
        await page.evaluate(
          `Object.defineProperty(document, 'hidden', { configurable: true, get: () => ${isHidden} });
        document.dispatchEvent(new Event('visibilitychange'))`
        )
      await goTo('audit')
      await page.locator('.live:not(.gap)').waitFor()
      const closed = page.waitForEvent('requestfailed', one => one.url().includes('/events'))
      await show(true)
      await closed
      await page.locator('.live.gap').waitFor()
      await call('POST', '/downstreams/plain/pause')
      await show(false)
      await page.locator('.live:not(.gap)').waitFor()
      await page.locator('tbody tr', { hasText: 'downstream.pause' }).nth(2).waitFor()
      await call('POST', '/downstreams/plain/resume')
    }
  )

  await t.test(
    'without the database it says so in place of asking for a key, and comes back by itself',
    async t => {
      const session = /\/session$/
      await page.route(session, route =>
        route.fulfill({
          status: 503,
          contentType: 'application/problem+json',
          body: JSON.stringify({ status: 503, code: 'UNAVAILABLE', title: 'The database is away' })
        })
      )
      await page.goto(`${url}/ui/audit`)
      await page.locator('[role=alert]', { hasText: 'The database is away' }).waitFor()
      t.equal(await page.locator('input[type=password]').count(), 0)
      await page.unroute(session)
      await page.locator('h1', { hasText: 'Audit' }).waitFor()
      wrong.splice(0, wrong.length, ...wrong.filter(text => !text.includes('503')))
    }
  )

  const dialog = page.locator('dialog[open]')
  const confirm = async (name: string, reason?: string) => {
    await dialog.waitFor()
    if (reason !== undefined) await dialog.locator('input').fill(reason)
    await dialog.locator('button[type=submit]', { hasText: name }).click()
    await dialog.waitFor({ state: 'hidden' })
  }
  const button = (name: string | RegExp) => page.getByRole('button', { name })
  const task = async (taskNo: string, more: object = {}) => {
    const { status } = await call('POST', '/tasks', {
      taskNo,
      messageCode: 'test.plain',
      messageBody: { n: 1 },
      ...more
    })
    t.equal(status, 201, taskNo)
  }
  const statusOf = async (taskNo: string) => (await call('GET', `/tasks/${taskNo}`)).body['status']

  await t.test('a downstream is paused and resumed in the page, and says that it is failing', async t => {
    await until('the counts are written', async () => {
      const { body } = await call('GET', '/stats?by=downstream&downstream=plain')
      const [series] = body['series'] as { total: { failedAttempts: number } }[]
      return (series?.total.failedAttempts ?? 0) >= 4
    })
    await goTo('downstreams')
    const row = page.locator('tr', { hasText: 'plain' })
    await row.locator('.mark.failed', { hasText: 'failing' }).waitFor()
    t.match(await row.innerText(), /500 · another cause/, 'the last error')
    await button('Pause: plain').click()
    await confirm('Pause')
    await row.locator('.mark', { hasText: 'paused' }).waitFor()
    await goTo('overview')
    await page.locator('text=plain is paused').waitFor()
    await goTo('downstreams')
    await button('Resume: plain').click()
    await row.locator('.mark', { hasText: 'failing' }).waitFor()
    t.match(await sql`select what from audit where target = 'plain' order by id desc limit 2`, [
      { what: 'downstream.resume' },
      { what: 'downstream.pause' }
    ])
  })

  await t.test('a redelivery that was begun is stopped, and a group is archived with a note', async t => {
    // The redelivery gets a fifth of it: one in 5 s.
    await call('PATCH', '/downstreams/plain', { perSecond: 1 })
    await goTo('failures')
    await page.locator('li.group', { hasText: 'warehouse' }).locator('button.main').click()
    await confirm('Redeliver 3')
    await button('Stop').click()
    await page.locator('.status', { hasText: 'STOPPED' }).waitFor()
    t.match(await sql`select what from audit order by id desc limit 1`, [{ what: 'operation.stop' }])
    await call('PATCH', '/downstreams/plain', { perSecond: null })

    await goTo('failures')
    const group = page.locator('li.group', { hasText: 'another cause' })
    await group.locator('button', { hasText: 'Archive' }).click()
    await confirm('Archive', 'they know')
    await group.waitFor({ state: 'hidden' })
    await button('Archived').click()
    await group.locator('text=they know').waitFor()
  })

  await t.test(
    'tasks are redelivered and deleted in their list; views and language are remembered',
    async t => {
      downstream.mend()
      await page.goto(`${url}/ui/tasks?q=status:FAILED`)
      await button('Redeliver all that match').click()
      await dialog.waitFor()
      t.match(await dialog.innerText(), /\d+ FAILED deliveries match now/)
      await dialog.locator('button', { hasText: 'Cancel' }).click()
      await button('Redeliver: other-1').click()
      await confirm('Redeliver')
      await until('it is HANDLED', async () => (await statusOf('other-1')) === 'HANDLED')
      await button('Save view').click()
      downstream.break()
      await task('waits-1')
      await page.goto(`${url}/ui/tasks`)
      await button('Delete: waits-1').click()
      await confirm('Delete')
      await until('it is DELETED', async () => (await statusOf('waits-1')) === 'DELETED')
      await page.reload()
      await button('★ status:FAILED').click()
      await page.locator('tbody tr').first().waitFor()
      t.match(page.url(), /q=status%3AFAILED$/)
      await button('中文').click()
      await page.goto(`${url}/ui/tasks?q=status:FAILED`)
      await page.locator('h1', { hasText: '任务' }).waitFor()
      await button('删除视图').click()
      await page.getByRole('button', { name: 'EN', exact: true }).click()
      await page.reload()
      await page.locator('h1', { hasText: 'Tasks' }).waitFor()
      t.equal(await button('★ status:FAILED').count(), 0, 'it is forgotten')
    }
  )

  await t.test('a task is sent on, alarmed, sent again and copied, and its page tells all of it', async t => {
    await on.fail(['alarmed-1'])
    await goTo('alarms')
    const row = page.locator('tr', { hasText: 'alarmed-1' })
    await row.locator('button', { hasText: 'Resolve' }).click()
    await row.waitFor({ state: 'hidden' })
    await goTo('task?no=alarmed-1')
    await page.locator('.timeline li', { hasText: 'Alarm FAILED all tries failed' }).waitFor()
    await page.locator('.timeline li', { hasText: 'Alarm FAILED Resolved' }).waitFor()
    downstream.mend()
    await button(/^Redeliver$/).click()
    await confirm('Redeliver')
    const card = page.getByRole('region', { name: 'plain' })
    await card.locator('.status', { hasText: 'HANDLED' }).waitFor()
    await button('Redeliver to plain').click()
    await confirm('Redeliver')
    await until('it came twice', () => downstream.taken.filter(one => one === 'alarmed-1').length === 2)
    await button('Edit and send as new').click()
    t.equal(await page.locator('textarea').inputValue(), '{\n  "n": 1\n}')
    await page.locator('textarea').fill('{"n": 2, "more": 1.10}')
    await page.getByRole('button', { name: 'Send as new', exact: true }).click()
    await page.locator('h1', { hasText: 'alarmed-1-2' }).waitFor()
    t.match((await call('GET', '/tasks/alarmed-1-2')).body, {
      messageBody: { n: 2, more: 1.1 },
      retryTimes: 1,
      extend: { copiedFrom: 'alarmed-1', difference: /more/ }
    })
    await page.locator('a', { hasText: /^alarmed-1$/ }).waitFor()
    await page.locator('pre .plus', { hasText: '1.10' }).waitFor()
    await page.locator('pre', { hasText: '"more": 1.10' }).last().waitFor()
  })

  await t.test('the page of a task tells what each attempt sent, and what would be sent now', async t => {
    const now = button('What would be sent now: plain')
    await goTo('task?no=alarmed-1')
    const [failed, again] = [1, 2].map(n => page.locator('.timeline li', { hasText: `plain Attempt ${n}` }))
    for (const line of [failed!, again!]) {
      if ((await line.locator('details').first().getAttribute('open')) === null)
        await line.locator('summary').first().click()
      await line.locator('h3', { hasText: /^Sent$/ }).waitFor()
      await line.locator('dd', { hasText: 'POST http://127.0.0.1' }).waitFor()
      await line.locator('dd summary', { hasText: /^[0-9a-f]{12}…$/ }).click()
      await line.locator('dd code', { hasText: /^[0-9a-f]{64}$/ }).waitFor()
    }
    t.equal(await now.getAttribute('aria-expanded'), 'false')
    await now.focus()
    await page.keyboard.press('Enter')
    await page.locator('.card pre', { hasText: 'webhook-signature: [masked]' }).waitFor()
    t.match(await page.locator('.card pre').innerText(), /\n\n\{"n":1\}$/)
    t.equal(await now.getAttribute('aria-expanded'), 'true')
    await page.keyboard.press('Enter')
    await page.locator('.card pre').waitFor({ state: 'detached' })
    await goTo('task?no=alarmed-1-2')
    await page.locator('.timeline summary', { hasText: 'plain Attempt 1' }).click()
    await page.locator('h3', { hasText: 'Sent, computed again from the task' }).waitFor()
  })

  await t.test('the page of a task whose receipt never came says so of its last attempt', async t => {
    downstream.mend()
    await task('silent-1', { messageCode: 'test.receipt', retryTimes: 1 })
    await until('its receipt is due', async () => downstream.tokens.has('silent-1'))
    await sql`
      update delivery set next_action_at = now() + interval '100 ms'
      where phase = 'AWAITING_RECEIPT' and task_id = (select id from task where task_no = 'silent-1')`
    await goTo('task?no=silent-1')
    await page
      .locator('.timeline li.bad', { hasText: 'receipted Attempt 1 200 ✓ no_receipt: none within 15 s' })
      .waitFor()
    t.match((await call('GET', '/alarms?taskNo=silent-1')).body, {
      alarms: only({ kind: 'FAILED', reason: 'RECEIPT_TIMEOUT' })
    })
    await goTo('tasks?q=silent-1')
    await page.locator('tr', { hasText: 'no receipt came · 200 · no_receipt: none within 15 s' }).waitFor()
  })

  await t.test('of a task with two downstreams one alone is marked as handled', async t => {
    downstream.break()
    await task('pair-1', { messageCode: 'test.pair', retryTimes: 1 })
    await until('both FAILED', async () => (await statusOf('pair-1')) === 'FAILED')
    await goTo('task?no=pair-1')
    await page.getByRole('button', { name: 'Mark as handled', exact: true }).click()
    await dialog.waitFor()
    t.match(await dialog.innerText(), /left FAILED\s+right FAILED/, 'the question lists all that it changes')
    await dialog.locator('button', { hasText: 'Cancel' }).click()
    await button('Mark as handled: left').click()
    t.notMatch(await dialog.innerText(), /right/)
    await confirm('Mark as handled', 'done by hand')
    const card = (name: string) => page.getByRole('region', { name }).locator('.status')
    await card('left').filter({ hasText: 'HANDLED' }).waitFor()
    t.equal(await card('right').innerText(), 'FAILED')
    downstream.mend()
    await button('Redeliver to right').click()
    await confirm('Redeliver')
    await card('right').filter({ hasText: 'HANDLED' }).waitFor()
    await page.getByRole('button', { name: 'Redeliver', exact: true }).first().click()
    await dialog.locator('text=It is HANDLED already').waitFor()
    await dialog.locator('button', { hasText: 'Cancel' }).click()
  })

  await t.test('half messages are asked about, rolled back and committed by hand', async t => {
    for (const taskNo of ['half-1', 'half-2'])
      await task(taskNo, { messageCode: 'test.half', prepared: true, checkBack: { after: '1h' } })
    await goTo('task?no=half-1')
    await button('Check now').click()
    await page.locator('text=checked once').waitFor()
    await button('Roll back').click()
    await confirm('Roll back')
    await page.locator('.status', { hasText: 'CANCELLED' }).first().waitFor()
    await goTo('task?no=half-2')
    await button('Commit').click()
    await confirm('Commit')
    await until('it is HANDLED', async () => (await statusOf('half-2')) === 'HANDLED')
    t.equal(await statusOf('half-1'), 'CANCELLED')
  })

  await t.test('what is held says by what, leads there, and goes on when the head is skipped', async t => {
    downstream.break()
    await task('key-1', { orderingKey: 'order-7', retryTimes: 1 })
    await task('key-2', { orderingKey: 'order-7' })
    await until('the key is held', async () => (await statusOf('key-1')) === 'FAILED')
    await goTo('overview')
    await page.locator('dl.numbers div', { hasText: 'Keys held' }).locator('dd', { hasText: '1' }).waitFor()
    await goTo('task?no=key-2')
    await page.locator('.card', { hasText: 'order-7 #' }).locator('a', { hasText: 'key-1' }).first().waitFor()
    await goTo('held')
    const blocked = page.locator('table[aria-label*="wait for other"] tr', { hasText: 'key-2' })
    t.match(await blocked.innerText(), /key-1\s+FAILED\s+order-7/)
    downstream.mend()
    await button('Skip').click()
    await confirm('Skip', 'not wanted')
    await until('the next one went', async () => (await statusOf('key-2')) === 'HANDLED')
    t.equal(await statusOf('key-1'), 'DELETED')
  })

  await t.test('a list that is longer than its page says so, and goes on', async t => {
    await sql`
      insert into outbox_rejected (id, task_no, created_by, problem)
      select gen_random_uuid(), 'rejected-' || n, 'sql:shop', '{"code": "INVALID"}' from generate_series(1, 120) n`
    await goTo('held')
    const rows = page.locator('table[aria-label="Rejected outbox rows"] tbody tr')
    await rows.nth(49).waitFor()
    t.equal(await rows.count(), 50)
    const more = page.locator('section', { has: rows }).getByRole('button', { name: 'More' })
    await more.click()
    await rows.nth(99).waitFor()
    await more.click()
    await rows.nth(119).waitFor()
    await more.waitFor({ state: 'hidden' })
    const last = rows.nth(119)
    const name = await last.locator('.head').innerText()
    await last.getByRole('button', { name: 'Remove' }).click()
    await confirm('Remove')
    await rows.getByRole('cell', { name, exact: true }).waitFor({ state: 'hidden' })
    t.equal(await rows.count(), 119, 'all of them were read again')
  })

  await t.test('a test task is shown before it is sent, without secrets', async t => {
    await goTo('downstreams')
    await page.locator('tr', { hasText: 'plain' }).locator('a', { hasText: 'Test task' }).click()
    await page.locator('textarea').waitFor()
    t.same(JSON.parse(await page.locator('textarea').inputValue()), { n: 1 }, 'a body that its schema takes')
    t.equal(await button('Send it').count(), 0, 'not before it was looked at')
    const before = downstream.taken.length
    await button('Show what would be sent').click()
    await page.locator('pre', { hasText: `POST ${downstream.url}/plain` }).waitFor()
    t.equal(downstream.taken.length, before, 'nothing was sent')
    await page.locator('textarea').fill('{"n": 7}')
    t.equal(await button('Send it').count(), 0, 'what is changed is looked at again')
    await button('Show what would be sent').click()
    await button('Send it').click()
    await page.locator('h1', { hasText: /^test-\d{14}$/ }).waitFor()
    await page.locator('.status', { hasText: 'HANDLED' }).first().waitFor()
    t.equal(downstream.taken.length, before + 1)
  })

  t.same(wrong, [])
})
