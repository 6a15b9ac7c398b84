// The page of a task, and the overview, while other things change and while the server does not answer.
import type { Route } from 'playwright-core'
import t from 'tap'
import { failedTasks, signIn } from '../support/dashboard.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

t.test('what the pages say is what is so now', async t => {
  const on = await failedTasks(t, 1)
  if (!on) return
  const { page, url, call } = on
  const { wrong } = on
  // The page's timers go on when the test says so.
  await page.clock.install()

  await t.test('why a task waits is read again, whatever changed it and whoever looks', async t => {
    const later = { taskNo: 'later-1', messageCode: 'test.plain', messageBody: { n: 1 }, delay: 3_600_000 }
    t.equal((await call('POST', '/tasks', later)).status, 201)
    await signIn(page, url, await on.keyFor('shop', ['ops:read'], ['test.plain']))
    let reads = 0
    page.on('response', response => {
      if (response.url() === `${url}/tasks/later-1`) reads++
    })
    await page.goto(`${url}/ui/task?no=later-1`)
    await page.locator('.waits', { hasText: 'Attempt 1 starts' }).waitFor()
    await until('it was read a second time, at the first look of its stream', () => reads >= 2)
    // The pause is no change of the task, and a key of some messageCodes does not hear of the audit.
    t.equal((await call('POST', '/downstreams/plain/pause')).status, 200)
    await page.clock.fastForward(10_000)
    await page.locator('.waits', { hasText: 'plain has been paused' }).waitFor()
    await call('POST', '/downstreams/plain/resume')
  })

  /** A stream whose first event is this change. The page connects again after it has handled the change. */
  const streamOf = async (change: object) => {
    let connections = 0
    await page.route('**/events?*', async route => {
      if (++connections > 1) return
      const body = `retry: 1\n\nevent: changed\ndata: ${JSON.stringify([change])}\n\n`
      await route.fulfill({ status: 200, contentType: 'text/event-stream', body })
    })
    return { handled: () => until('the change was handled', () => connections > 1) }
  }

  await t.test('a change that comes with the end of a task is read', async () => {
    await signIn(page, url, on.admin)
    const reading: Route[] = []
    await page.route('**/tasks/order-0', route => {
      reading.push(route)
    })
    const stream = await streamOf({ kind: 'task', taskNo: 'order-0' })
    await page.goto(`${url}/ui/task?no=order-0`)
    await stream.handled()
    await until('it is read', () => reading.length === 1)
    await reading[0]?.continue()
    await until('it is read again', () => reading.length === 2)
    await reading[1]?.continue()
    await page.unroute('**/tasks/order-0')
    await page.unroute('**/events?*')
  })

  await t.test('the page of a task is not read again for failures of other tasks', async t => {
    await signIn(page, url, on.admin)
    let reads = 0
    page.on('request', request => {
      if (request.url() === `${url}/tasks/order-0`) reads++
    })
    const stream = await streamOf({ kind: 'failure', messageCode: 'test.plain', downstream: 'plain' })
    await page.goto(`${url}/ui/task?no=order-0`)
    await page.locator('.timeline').waitFor()
    await stream.handled()
    await page.clock.fastForward(5_000)
    await page.evaluate("fetch('/session').then(answer => answer.text())")
    t.equal(reads, 1)
    await page.unroute('**/events?*')
  })

  await t.test('the link of an alarm lists the open alarms of its kind and downstream', async () => {
    await signIn(page, url, on.admin)
    await page.goto(`${url}/ui/alarms?kind=TLS&downstream=plain`)
    await page.locator('main', { hasText: 'Nothing here.' }).waitFor()
    await page.getByRole('link', { name: 'TLS ✕' }).click()
    await page.locator('tbody tr', { hasText: 'order-0' }).waitFor()
    await page.getByRole('button', { name: 'All', exact: true }).click()
    await page.waitForURL(`${url}/ui/alarms?all=true&downstream=plain`)
    await page.goto(`${url}/ui/alarms?kind=FAILED&downstream=receipt`)
    await page.locator('main', { hasText: 'Nothing here.' }).waitFor()
  })

  await t.test('a bulk redelivery is told on the page of each task that it took', async () => {
    on.downstream.mend()
    await signIn(page, url, on.admin)
    await page.goto(`${url}/ui/task?no=order-0`)
    await page.locator('.timeline').waitFor()
    await call('POST', '/tasks/redeliver', { filter: { downstream: 'plain' } })
    await page.locator('.timeline li.hand', { hasText: 'tasks.redeliver by ops-1' }).locator('a').click()
    await page.locator('h1', { hasText: 'Redelivery' }).waitFor()
  })

  await t.test(
    'nothing is called right while it cannot be read, and the reason is in the language',
    async t => {
      await signIn(page, url, await on.keyFor('other', ['ops:read'], ['test.receipt']))
      await page.locator('.good', { hasText: 'Nothing is wrong.' }).waitFor()
      await page.getByRole('button', { name: '中文' }).click()
      await page.route('**/stats?*', route => route.abort())
      await page.clock.fastForward(10_000)
      await page.locator('[role=alert]', { hasText: '无法连接服务器。' }).waitFor()
      t.equal(await page.locator('.good').count(), 0, 'what was so before may have changed')
      t.match(await page.locator('main').innerText(), /显示的是 \d\d:\d\d:\d\d 的状态/)
      await page.unroute('**/stats?*')
      await page.clock.fastForward(10_000)
      await page.locator('.good', { hasText: '一切正常。' }).waitFor()
      t.equal(await page.locator('[role=alert]').count(), 0)
      wrong.splice(0, wrong.length, ...wrong.filter(text => !text.includes('ERR_FAILED')))
    }
  )

  await t.test('a body that is no JSON is refused in the language of the page', async () => {
    await signIn(page, url, on.admin)
    await page.goto(`${url}/ui/task?no=order-0&lang=zh`)
    await page.getByRole('button', { name: '编辑为新任务' }).click()
    await page.locator('textarea').fill('{\n"n": x}')
    await page.getByRole('button', { name: '发送新任务', exact: true }).click()
    await page.locator('.said', { hasText: '消息体不是 JSON。' }).waitFor()
  })

  t.same(wrong, [])
})
