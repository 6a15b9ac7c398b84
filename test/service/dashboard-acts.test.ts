import t from 'tap'
import { failedTasks, signIn } from '../support/dashboard.ts'
import { until } from '../support/until.ts'

t.setTimeout(600_000)

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
    await page.locator('button', { hasText: 'Sign out' }).click()
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

  t.ok(sql)
  t.same(wrong, [])
})
