// A key is offered the pages and the buttons that it may use, and no others.
import t from 'tap'
import { scopes, type Scope } from '../../src/db/api-keys.ts'
import { failedTasks, signIn, signOut } from '../support/dashboard.ts'
import { until } from '../support/until.ts'

t.test('nothing is offered that is refused afterwards', async t => {
  const on = await failedTasks(t, 1)
  if (!on) return
  const { page, wrong, url, call, keyFor } = on
  const pair = { messageCode: 'test.pair', messageBody: { n: 1 }, retryTimes: 1, orderingKey: 'order-7' }
  t.equal((await call('POST', '/tasks', { taskNo: 'pair-1', ...pair })).status, 201)
  await until('both FAILED', async () => (await call('GET', '/tasks/pair-1')).body['status'] === 'FAILED')
  const buttons = page.locator('main button')
  const titled = (title: string) => until(title, async () => (await page.title()) === title)
  const goTo = async (path: string, ready: string) => {
    await page.goto(`${url}/ui/${path}`)
    await page.locator(ready).first().waitFor()
    return await buttons.evaluateAll(all => all.map(one => (one as { ariaLabel?: string }).ariaLabel))
  }

  await t.test('of a shared downstream a key of some messageCodes pauses and releases nothing', async t => {
    await signIn(page, url, await keyFor('pairs', scopes, ['test.pair']))
    // The downstream `left` also gets tasks of test.left.
    t.same(await goTo('downstreams', 'main tbody tr'), ['Pause: right', 'Change limits: right'])
    const rows = page.locator('tbody tr', { hasText: 'order-7' })
    await goTo('held', 'tbody tr:has-text("order-7")')
    t.equal(await rows.filter({ hasText: 'left' }).getByRole('button', { name: 'Release' }).count(), 0)
    t.equal(await rows.filter({ hasText: 'right' }).getByRole('button', { name: 'Release' }).count(), 1)
  })

  await t.test('a group of failures that is not only its own is not archived', async t => {
    await goTo('failures', 'li.group')
    const archive = page.locator('li.group', { hasText: 'left' }).getByRole('button', { name: 'Archive' })
    t.equal(await archive.count(), 1, 'until now all are its own')
    const other = { taskNo: 'pair-2', messageCode: 'test.left', messageBody: { n: 1 }, retryTimes: 1 }
    t.equal((await call('POST', '/tasks', other)).status, 201)
    await until('it FAILED', async () => (await call('GET', '/tasks/pair-2')).body['status'] === 'FAILED')
    await goTo('failures', 'li.group')
    t.equal(await page.locator('li.group').count(), 2)
    t.equal(await archive.count(), 0)
  })

  await t.test('the audit is in the menu of keys that may read it', async t => {
    t.equal(await page.locator('nav >> text=Audit').count(), 0)
    await page.keyboard.press('g')
    await page.keyboard.press('u')
    await page.keyboard.press('?')
    await page.locator('dialog[open]', { hasText: 'Failures' }).waitFor()
    t.notMatch(await page.locator('dialog').allInnerTexts(), /Audit/)
    t.match(page.url(), /\/ui\/failures$/)
  })

  await t.test('a key that may only post is told so, and asks for nothing more', async t => {
    const refused: string[] = []
    page.on('response', answer => {
      if (answer.status() === 403) refused.push(answer.url())
    })
    await signIn(page, url, await keyFor('poster', ['tasks:write']))
    await page.locator('main', { hasText: 'Sign in with a key that has tasks:read or ops:read.' }).waitFor()
    await titled('This key opens no page · Ackbox')
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.locator('input[type=password]').waitFor()
    await titled('Sign in · Ackbox')
    t.same(refused, [])
  })

  await t.test('a key that may not read listens to no changes', async t => {
    const asked: string[] = []
    page.on('request', request => asked.push(new URL(request.url()).pathname))
    await signIn(page, url, await keyFor('key-maker', ['ops:write']))
    await page.locator('main tbody tr').first().waitFor()
    t.equal(await page.locator('.live').count(), 0)
    await signOut(on)
    t.notOk(asked.includes('/events'))
  })

  await t.test('a test task is sent only by a key that may post', async t => {
    const send = page.getByRole('button', { name: 'Send it' })
    const look = async (of: Scope[]) => {
      await signIn(page, url, await keyFor('tester', of))
      await goTo('test?downstream=plain', 'select')
      await page.getByRole('button', { name: 'Show what would be sent' }).click()
      await page.locator('h2', { hasText: 'This would be sent' }).waitFor()
      return await send.count()
    }
    t.equal(await look(['ops:read']), 0)
    t.equal(await look(['ops:read', 'tasks:write']), 1)
  })

  await t.test('a half message is checked by a key that may post', async t => {
    const half = { taskNo: 'half-1', messageCode: 'test.half', messageBody: { n: 1 }, prepared: true }
    t.equal((await call('POST', '/tasks', { ...half, checkBack: { after: '1h' } })).status, 201)
    t.equal((await call('POST', '/tasks/half-1/check')).status, 200)
    await until('it was asked about', async () => {
      const { body } = await call('GET', '/tasks?status=PREPARED&checked=true')
      return (body['tasks'] as object[]).length === 1
    })
    await signIn(page, url, await keyFor('checker', ['ops:read', 'tasks:write']))
    await goTo('held', 'tr:has-text("half-1")')
    t.equal(await page.locator('tr', { hasText: 'half-1' }).getByRole('button').count(), 1)
  })
  t.same(wrong, [])
})
