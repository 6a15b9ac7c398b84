// Takes long: npm run test:long.
import t from 'tap'
import { scopes } from '../../src/db/api-keys.ts'
import { deliveryId } from '../../src/domain/ids.ts'
import { failedTasks, photograph, signIn, signOut } from '../support/dashboard.ts'
import { only } from '../support/only.ts'
import { tally } from '../support/stage.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

t.test('three in the morning: 500 FAILED are all HANDLED after at most eight clicks, with proof', async t => {
  const on = await failedTasks(t, 500)
  if (!on) return
  const { page, wrong, url, sql, downstream } = on
  await page.exposeFunction('clicked', () => clicks++)
  let clicks = 0
  await page.addInitScript("addEventListener('click', () => clicked(), true)")

  await signIn(page, url, on.admin)
  await page.locator('nav >> text=Failures').click()
  const group = page.locator('.group')
  await group.waitFor()
  t.equal(await group.count(), 1, 'one cause is one group, whatever the numbers in the answers')
  t.equal(await group.locator('.count strong').innerText(), '500')
  t.match(await group.innerText(), /plain.*all tries failed.*500/s)
  t.match(await group.innerText(), /stock # of order-# cannot be booked/, 'why, without numbers')
  downstream.mend()
  await group.locator('button', { hasText: 'Redeliver' }).click()
  const question = page.locator('dialog[open]')
  await photograph(page, 'story-question-en')
  t.match(await question.innerText(), /500 FAILED deliveries match now/)
  await question.locator('button', { hasText: 'Redeliver 500' }).click()
  await page.locator('progress').waitFor()
  await page.locator('#whole').waitFor({ timeout: 120_000 })
  await photograph(page, 'story-proof-en')
  t.match(await page.locator('#whole').innerText(), /All 500 are HANDLED. None is missing./)
  const failed = page.locator('tr.row .status', { hasText: 'FAILED' }).first()
  const seen = stopwatch(t)
  await failed.waitFor({ state: 'detached', timeout: 120_000 })
  t.ok(seen() < 4_000, 'the list shows it by itself')
  t.ok(clicks <= 8, `${clicks} clicks`)
  t.same(await tally(sql), { HANDLED: 500 })
  t.equal(new Set(downstream.taken).size, 500, 'the downstream has all of them')

  await page.locator('nav >> text=Failures').click()
  await page.locator('.group .count strong', { hasText: /^0$/ }).waitFor()
  t.same(wrong, [], 'the console is silent, and nothing was asked for elsewhere')
  await signOut(on)

  await t.test('the same by keyboard alone, in Chinese', async t => {
    downstream.break()
    await on.fail(Array.from({ length: 500 }, (_, i) => `night-${i}`))
    downstream.mend()
    const before = clicks
    await page.goto(`${url}/ui/overview?lang=zh`)
    await page.locator('input[type=password]').waitFor()
    await page.keyboard.press('Tab')
    await page.keyboard.type(on.admin)
    await page.keyboard.press('Enter')
    await page.locator('nav').waitFor()
    await page.keyboard.press('g')
    await page.keyboard.press('f')
    await page.locator('.group .count strong', { hasText: '500' }).waitFor()
    await page.keyboard.press('j')
    await page.locator('li.group:focus').waitFor()
    await page.keyboard.press('r')
    const question = page.locator('dialog[open]')
    await question.waitFor()
    await photograph(page, 'story-question-zh')
    t.match(await question.innerText(), /当前有 500 个失败的投递符合条件/)
    const focused = () => page.evaluate('document.activeElement?.textContent ?? ""') as Promise<string>
    for (let presses = 0; !(await focused()).startsWith('重投 500 个') && presses < 10; presses++)
      await page.keyboard.press('Tab')
    await page.keyboard.press('Enter')
    await page.locator('#whole').waitFor({ timeout: 120_000 })
    await photograph(page, 'story-proof-zh')
    t.equal(await page.locator('#whole').innerText(), '全部 500 个均已处理，无一遗漏。')
    t.same(await tally(sql), { HANDLED: 1_000 })
    t.equal(new Set(downstream.taken).size, 1_000, 'the downstream has all of them')

    await page.keyboard.press('g')
    await page.keyboard.press('t')
    await page.locator('tr.row').first().waitFor()
    await page.keyboard.press('/')
    await page.keyboard.type('order-7')
    await page.keyboard.press('Enter')
    await page.locator('h1', { hasText: 'order-7' }).waitFor()
    t.match(page.url(), /\/ui\/task\?no=order-7$/, 'a whole taskNo is opened at once')
    // Enter in a form presses its button: the browser reports that as a click.
    t.ok(clicks - before <= 3, `${clicks - before} presses of Enter`)
    t.same(wrong, [])
  })
})

t.test('what a key may see and do', async t => {
  const on = await failedTasks(t, 3)
  if (!on) return
  const { page, wrong, url, sql, call, keyFor } = on

  await t.test(
    'a key that may only look sees no button; a key of some messageCodes sees those alone',
    async t => {
      await signIn(page, url, await on.keyFor('looker', ['ops:read']))
      for (const path of ['failures', 'downstreams', 'alarms', 'held', 'task?no=order-1']) {
        await page.goto(`${url}/ui/${path}`)
        await page.locator(path.startsWith('task') ? '.timeline' : 'main h1').waitFor()
        await page.waitForLoadState('networkidle').catch(() => {})
        const acts = await page
          .locator('main button', {
            hasText: /^(?:Redeliver|Archive|Pause|Resolve|Delete|Mark.*|Release|Edit.*)$/
          })
          .count()
        t.equal(acts, 0, path)
      }
      t.match(await page.locator('main').innerText(), /shown to keys with tasks:read/, 'nor the body')
      t.equal(await page.locator('nav >> text=Keys').count(), 0)

      await signOut(on)
      await signIn(page, url, await on.keyFor('other', scopes, ['test.receipt']))
      for (const path of ['failures', 'tasks', 'downstreams', 'overview']) {
        await page.goto(`${url}/ui/${path}`)
        await page.locator('main h1').waitFor()
        await page.waitForLoadState('networkidle').catch(() => {})
        t.notMatch(await page.locator('main').innerText(), /order-|test\.plain|\bplain\b/, path)
      }
      t.same(wrong, [])
    }
  )

  await t.test('the webhook-id of a log of the downstream finds its task, however old', async t => {
    const [row] = await sql<{ id: string }[]>`select id from task where task_no = 'order-1'`
    const webhookId = deliveryId(row?.id ?? '', 'plain')
    const found = async (query: string, key?: string) => {
      const { status, body } = await call('GET', `/tasks?${query}`, undefined, key)
      t.equal(status, 200)
      return (body['tasks'] as { taskNo: string }[]).map(one => one.taskNo)
    }
    t.same(await found(`webhookId=${webhookId}`), ['order-1'])
    t.same(await found(`webhookId=${webhookId}&status=FAILED`), ['order-1'])
    t.same(await found(`webhookId=${webhookId}&status=HANDLED`), [])
    t.same(await found(`webhookId=${deliveryId(row?.id ?? '', 'other')}`), [], 'no delivery of it goes there')
    t.same(await found(`webhookId=${webhookId}`, await keyFor('other', ['tasks:read'], ['test.receipt'])), [])
    t.match(await call('GET', '/tasks?webhookId=order-1'), {
      status: 422,
      body: { code: 'INVALID', pointer: '?/webhookId' }
    })

    await signIn(page, url, on.admin)
    await page.goto(`${url}/ui/tasks`)
    await page.locator('input[type=search]').fill(webhookId)
    await page.keyboard.press('Enter')
    await page.locator('h1', { hasText: 'order-1' }).waitFor()
    await page.locator('.timeline').waitFor()
    t.notMatch(await page.locator('main').innerText(), /the newest/, 'all its attempts are here')
    await sql`
      insert into attempt (task_id, downstream, attempt, outcome, ms, node, started_at)
      select id, 'plain', n, 'delivered', 1, 'n', now() from task, generate_series(1001, 1200) n where task_no = 'order-1'`
    await page.reload()
    await page.locator('.timeline').waitFor()
    t.match(await page.locator('main').innerText(), /plain the newest 100 of 20\d attempts/)
    t.same(wrong, [])
  })

  await t.test(
    'the page of downstreams says since when the oldest is due, changes limits, and gives them back to the handler',
    async t => {
      t.equal((await call('POST', '/downstreams/plain/pause')).status, 200)
      await call('POST', '/tasks', { taskNo: 'waits-1', messageCode: 'test.plain', messageBody: { n: 1 } })
      await signIn(page, url, on.admin)
      await page.goto(`${url}/ui/downstreams?lang=en`)
      const row = page.locator('tr', { hasText: 'plain' })
      await row.locator('time').first().waitFor()
      t.equal(await row.locator('time').count(), 1, 'since when the oldest is due')
      const change = async (fields: Record<string, string>) => {
        await page.getByRole('button', { name: 'Change limits: plain' }).click()
        const question = page.locator('dialog[open]')
        for (const [name, text] of Object.entries(fields))
          await question.locator(`input[name=${name}]`).fill(text)
        await question.locator('button[type=submit]').click()
        await question.waitFor({ state: 'hidden' })
      }
      await change({ concurrency: '7', perSecond: '30' })
      await row.locator('text=7 × 30 / s').waitFor()
      const set = () => sql`select concurrency, per_second from downstream where name = 'plain'`
      t.match(await set(), only({ concurrency: 7, per_second: 30 }))
      t.match(
        await sql`select who, what from audit where target = 'plain' order by id`,
        only({ who: 'ops-1', what: 'downstream.pause' }, { who: 'ops-1', what: 'downstream.limits' })
      )
      await change({ perSecond: '' })
      await until('it is the handler that says', async () => (await set())[0]?.['per_second'] === null)
      t.match(await set(), only({ concurrency: 7, per_second: null }), 'the other is as it was')
      t.same(wrong, [])
    }
  )

  await t.test('the cookie is no key, a write needs its token, and both end with the key', async t => {
    await signIn(page, url, on.admin)
    const [cookie] = await page.context().cookies()
    t.match(cookie, { name: 'ackbox', httpOnly: true, sameSite: 'Strict', path: '/' })
    t.notMatch(String(cookie?.value), /ack_/)
    const [row] = await sql`select * from session`
    t.notMatch(JSON.stringify(row), cookie?.value ?? 'none', 'only its hash is kept')
    const send = (headers: Record<string, string>) =>
      fetch(`${url}/downstreams/plain/pause`, {
        method: 'POST',
        headers: { cookie: `ackbox=${cookie?.value}`, ...headers }
      })
    t.match(await (await send({})).json(), { status: 403, code: 'CSRF' }, 'as a form of another site would')
    t.match(await (await send({ 'ackbox-csrf': 'x'.repeat(43) })).json(), { status: 403, code: 'CSRF' })
    const said = (await (
      await fetch(`${url}/session`, { headers: { cookie: `ackbox=${cookie?.value}` } })
    ).json()) as { csrf: string }
    const foreign = await send({
      'ackbox-csrf': said.csrf,
      origin: 'https://evil.example',
      'sec-fetch-site': 'cross-site'
    })
    t.match(await foreign.json(), { status: 403, code: 'CROSS_ORIGIN' })
    t.equal((await send({ 'ackbox-csrf': said.csrf })).status, 200)
    const inline = await page.evaluate(
      "(() => { const s = document.createElement('script'); try { s.text = 'window.hacked = 1'; document.head.append(s) } catch {} return window.hacked })()"
    )
    t.equal(inline, undefined, 'an inline script does not run')

    await sql`update api_key set revoked_at = now() where name = 'ops-1'`
    await until(
      'the session ended with its key',
      async () => (await send({ 'ackbox-csrf': said.csrf })).status === 401
    )
  })
})
