// Takes long: npm run test:long.
import t from 'tap'
import { failedTasks, signIn } from '../support/dashboard.ts'
import { until } from '../support/until.ts'

t.test('what an operator finds, and what is offered for it', async t => {
  const on = await failedTasks(t, 2)
  if (!on) return
  const { page, wrong, url, sql, call } = on
  const search = async (q: string) => {
    await page.goto(`${url}/ui/tasks?${new URLSearchParams({ q, lang: 'en' }).toString()}`)
    await page.locator('main h1').waitFor()
  }
  const all = page.getByRole('button', { name: 'Redeliver all that match' })
  await signIn(page, url, on.admin)

  await t.test('a search that was not understood finds nothing and redelivers nothing', async t => {
    await search('status:FAILED')
    await all.waitFor()
    for (const [q, said] of [
      ['status:FAILED wyh:"read ECONNRESET"', 'No filter is called wyh.'],
      ['order-0 order-1', 'A search takes one taskNo: order-1 is one too many.']
    ] as const) {
      const asked: string[] = []
      const note = (request: { url: () => string }) => asked.push(request.url())
      page.on('request', note)
      // The page asks for it after it has asked for its list.
      const last = page.waitForResponse(/\/handlers$/)
      await search(q)
      await last
      await page.locator('main .failed', { hasText: said }).waitFor()
      page.off('request', note)
      t.same(
        asked.filter(one => /\/tasks\?(?!.*lang=)/.test(one)),
        [],
        q
      )
      t.equal(await page.locator('tbody tr').count(), 0, q)
      t.equal(await all.count(), 0, q)
    }
  })

  await t.test('the business key of a task leads to its tasks, with spaces and quotes in it', async t => {
    const task = { messageCode: 'test.plain', messageBody: { n: 1 }, bizType: 'big order', retryTimes: 1 }
    await call('POST', '/tasks', { ...task, taskNo: 'biz-1', bizKey: '12" pipe \\ 7' })
    await call('POST', '/tasks', { ...task, taskNo: 'biz-2', bizKey: '12' })
    await until('both FAILED', async () => {
      const { body } = await call('GET', '/tasks?status=FAILED')
      return (body['tasks'] as object[]).length === 4
    })
    await page.goto(`${url}/ui/task?no=biz-1`)
    await page.locator('.about a', { hasText: '12" pipe' }).click()
    await page.locator('tbody tr', { hasText: 'biz-1' }).waitFor()
    t.equal(await page.locator('tbody tr').count(), 1)
    t.equal(await page.locator('main .failed:not(.mark, .status)').count(), 0)
    await all.click()
    t.match(await page.locator('dialog[open]').innerText(), /\b1 FAILED deliveries match now/)
  })

  await t.test('a slow look-up of a taskNo does not fetch back who went to another page', async t => {
    await search('')
    let answer = () => {}
    const isLeft = new Promise<void>(resolve => (answer = resolve))
    const asked = page.waitForRequest(/\/tasks\/order-0$/)
    await page.route(/\/tasks\/order-0$/, async route => {
      await isLeft
      await route.continue()
    })
    await page.locator('input[type=search]').fill('order-0')
    await page.keyboard.press('Enter')
    const request = await asked
    await page.locator('nav >> text=Failures').click()
    await page.locator('li.group').first().waitFor()
    answer()
    await (await request.response())?.finished()
    // An answer after this one has been read, too.
    await page.evaluate("fetch('/healthz').then(answer => answer.text())")
    t.match(page.url(), /\/ui\/failures$/)
    await page.unroute(/\/tasks\/order-0$/)
    await page.goBack()
    await page.locator('h1', { hasText: 'Tasks' }).waitFor()
    await page.locator('input[type=search]').press('Enter')
    await page.locator('h1', { hasText: 'order-0' }).waitFor()
  })

  await t.test('the counts of all that is FAILED lead to it, also if that was long ago', async t => {
    await sql`update failure set created_at = created_at - interval '40 days'`
    const group = page.locator('li.group', { hasText: 'of order-#' })
    await page.goto(`${url}/ui/overview`)
    await page.locator('dl.numbers div', { hasText: 'FAILED' }).locator('a', { hasText: '4' }).click()
    await group.waitFor()
    await group.getByRole('link', { name: 'Show tasks' }).click()
    await page.locator('tbody tr', { hasText: 'order-0' }).waitFor()
    t.equal(await group.count(), 1, 'the group is still there')
    await page.goto(`${url}/ui/overview`)
    await page.getByRole('link', { name: '4 deliveries are FAILED' }).click()
    await group.waitFor()
    await page.goto(`${url}/ui/downstreams`)
    await page.locator('tr', { hasText: 'plain' }).getByRole('link', { name: '4', exact: true }).click()
    await group.waitFor()
    await page.getByRole('button', { name: '30 d' }).click()
    await page.locator('main .empty').waitFor()
    await sql`update failure set created_at = created_at + interval '40 days'`
  })

  await t.test('failures that were not all read are not called none, nor their last error', async t => {
    const isAll = (address: URL) =>
      address.pathname === '/failures' && !address.searchParams.has('downstream')
    await page.route(isAll, route => route.fulfill({ json: { failures: [], partial: true } }))
    await page.goto(`${url}/ui/failures`)
    await page.locator('main', { hasText: 'Not all failures are here' }).waitFor()
    t.equal(await page.locator('main .empty').count(), 0)
    await page.goto(`${url}/ui/downstreams`)
    await page.locator('tr', { hasText: 'plain' }).filter({ hasText: 'the warehouse is closed' }).waitFor()
    await page.unroute(isAll)
  })

  await t.test('a page that reads too much for the limit of its key waits for the rest', async t => {
    let refused = 0
    await page.route(/\/nodes$/, async route => {
      if (refused === 2) return await route.continue()
      refused++
      await route.fulfill({
        status: 429,
        headers: { 'retry-after': '1' },
        json: { code: 'TOO_MANY_REQUESTS' }
      })
    })
    await page.goto(`${url}/ui/overview`)
    await page.locator('dl.numbers').waitFor()
    t.equal(refused, 2)
    t.equal(await page.locator('[role=alert]').count(), 0)
    await page.unroute(/\/nodes$/)
    wrong.splice(0, wrong.length, ...wrong.filter(text => !text.includes('429')))
  })

  await t.test('downstreams are shown without the last error of one that could not be asked', async t => {
    const isAll = (address: URL) => address.pathname === '/failures'
    await page.route(isAll, route =>
      new URL(route.request().url()).searchParams.has('downstream')
        ? route.fulfill({ status: 503, json: { code: 'UNAVAILABLE' } })
        : route.fulfill({ json: { failures: [], partial: true } })
    )
    await page.goto(`${url}/ui/downstreams`)
    await page.locator('tbody tr', { hasText: 'plain' }).waitFor()
    t.equal(await page.locator('[role=alert]').count(), 0)
    await page.unroute(isAll)
    wrong.splice(0, wrong.length, ...wrong.filter(text => !text.includes('503')))
  })

  await t.test('a search that has not read all does not say that nothing is there', async t => {
    const isList = (address: URL) => address.pathname === '/tasks'
    await page.route(isList, route =>
      route.fulfill({ json: { tasks: [], nextCursor: 'next', partial: true } })
    )
    await search('why:rare')
    await page.locator('main', { hasText: 'Not all rows were searched' }).waitFor()
    await page.getByRole('button', { name: 'More', exact: true }).waitFor()
    t.equal(await page.locator('main .empty').count(), 0)
    await page.unroute(isList)
  })

  await t.test('where too many are FAILED to count what matches, the question says so', async t => {
    const id = '0199a1b2-c3d4-7e5f-8a6b-0123456789ab'
    const of = { id, filter: {}, createdAt: new Date().toISOString(), createdBy: 'ops-1' }
    const done = {
      ...of,
      state: 'DONE',
      matched: '10,000+',
      redelivered: 3,
      skipped: 0,
      deliveries: { HANDLED: 3 }
    }
    await page.route(/\/tasks\/redeliver$/, async route => {
      const { dryRun } = route.request().postDataJSON() as { dryRun?: true }
      await route.fulfill({ json: dryRun ? { dryRun, matched: '0+' } : done })
    })
    await page.route(/\/operations\/[^/]+$/, route => route.fulfill({ json: done }))
    await page.route(/\/operations\/[^/]+\/deliveries/, route => route.fulfill({ json: { deliveries: [] } }))
    await search('status:FAILED')
    await all.click()
    const question = page.locator('dialog[open]')
    t.match(
      await question.innerText(),
      /More than 10,000 .* of the oldest 10,000 of each downstream, 0 match/
    )
    await question.getByRole('button', { name: 'Redeliver all that match' }).click()
    await page.locator('label', { hasText: '3 of 3 taken' }).waitFor()
    // The page asks for its list every 5 s.
    await page.goto('about:blank')
    await page.unrouteAll()
  })

  await t.test(
    'a bulk redelivery that has ended says of all that it counted what became of them',
    async t => {
      const id = '0199a1b2-c3d4-7e5f-8a6b-0123456789ab'
      const counts = { matched: 6, redelivered: 3, skipped: 1, deliveries: { HANDLED: 3 } }
      let state = 'RUNNING'
      await page.route(/\/operations\/[^/]+$/, route =>
        route.fulfill({
          json: { id, filter: {}, createdAt: new Date().toISOString(), createdBy: 'ops-1', state, ...counts }
        })
      )
      await page.route(/\/operations\/[^/]+\/deliveries/, route =>
        route.fulfill({ json: { deliveries: [] } })
      )
      await page.goto(`${url}/ui/operation?id=${id}`)
      await page.locator('label', { hasText: '4 of 6 taken' }).waitFor()
      const gone = page.locator('main', { hasText: '2 were no longer FAILED when their turn came.' })
      t.equal(await gone.count(), 0, 'their turn may still come')
      state = 'DONE'
      await gone.waitFor()
      // The page asks for its list every 5 s.
      await page.goto('about:blank')
      await page.unrouteAll()
    }
  )

  t.same(wrong, [])
})
