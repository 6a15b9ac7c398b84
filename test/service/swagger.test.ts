// Takes long: npm run test:long.
import t, { type Test } from 'tap'
import type { Page } from 'playwright-core'
import { browser } from '../support/chromium.ts'
import { dataFolder } from '../support/cluster.ts'
import { testDb } from '../support/postgres.ts'
import { folder, secret, start } from '../support/service.ts'
import { createKey } from '../../src/db/api-keys.ts'

t.setTimeout(2_400_000)

/** One operation of the page, used as a person does: open, fill in, execute, read the answer. */
async function operation(page: Page, id: string) {
  const block = page.locator(`#operations-${id}`)
  await block.locator('.opblock-summary-control').click()
  const answer = block.locator('.live-responses-table .response')
  return {
    block,
    fill: (name: string, value: string) =>
      block.locator(`tr[data-param-name="${name}"] :is(input, textarea)`).fill(value),
    select: (name: string, value: string) =>
      block.locator(`tr[data-param-name="${name}"] select`).selectOption(value),
    example: (name: string) => block.locator('.examples-select select').selectOption({ label: name }),
    async execute(): Promise<{ status: number; text: string }> {
      const clear = block.locator('.btn-clear')
      if (await clear.isVisible()) await clear.click()
      await block.locator('.execute').click()
      await answer.waitFor()
      return {
        status: Number.parseInt(await answer.locator('.response-col_status').innerText()),
        text: await answer.locator('.response-col_description').innerText()
      }
    }
  }
}

async function opened(
  t: Test,
  env: Record<string, string>
): Promise<{ page: Page; wrong: string[]; url: string } | null> {
  const watched = await browser(t)
  if (!watched) return null
  const { url } = await start(t, { DEMO: 'on', ...env })
  await watched.page.goto(`${url}/docs`)
  await watched.page.locator('#operations-tasks-acceptTask').waitFor()
  return { ...watched, url }
}

t.test(
  'somebody who only clicks posts the example, sees it HANDLED, delivers it again and pauses',
  async t => {
    const seen = await opened(t, { DATA_DIR: await dataFolder(t) })
    if (!seen) return
    const { page, wrong } = seen

    t.same(
      await page.locator('.opblock-tag').evaluateAll(tags => tags.map(tag => tag.getAttribute('data-tag'))),
      ['tasks', 'callback', 'ops', 'dashboard', 'operations', 'outbox', 'reconcile'],
      'producers first'
    )
    t.match(await page.title(), 'Ackbox')

    const post = await operation(page, 'tasks-acceptTask')
    t.match(await post.execute(), { status: 201, text: /"taskNo": "order-A-1001"/ })
    t.match(await post.execute(), { status: 200 }, 'the same again')

    const read = await operation(page, 'tasks-readTask')
    await read.select('wait', 'HANDLED')
    let handled = await read.execute()
    // A receipt may come before the answer. The attempt is shown only after the answer.
    for (let looks = 0; looks < 20 && handled.text.includes('"attempts": []'); looks++)
      handled = await read.execute()
    t.match(handled, { status: 200, text: /"status": "HANDLED"/ }, 'the path is filled in already')
    t.match(handled.text, /"attempts": \[\s*\{\s*"attempt": 1/)
    // The receiver confirms in its answer or by a receipt, depending on the delivery's random id.
    const isAnswered = handled.text.includes('"handledBy": "answer"')
    t.match(handled.text, isAnswered ? /"ackbox-result",\s*"HANDLED"/ : /"receipts": \[\s*\{/)

    const deliveries = await operation(page, 'ops-listDeliveries')
    await deliveries.select('status', 'HANDLED')
    t.match(await deliveries.execute(), { status: 200, text: /"downstream": "warehouse"/ })

    const pause = await operation(page, 'ops-pauseDownstream')
    t.match(await pause.execute(), { status: 200, text: /"paused": true/ })

    const redeliver = await operation(page, 'tasks-redeliverTask')
    t.match(await redeliver.execute(), { status: 409 }, 'nothing FAILED')
    await redeliver.example('One downstream, even if HANDLED')
    t.match(await redeliver.execute(), { status: 200, text: /"status": "SENDING"/ })
    await read.select('wait', '')
    t.match(await read.execute(), { status: 200, text: /"phase": "WAITING"/ }, 'it is paused')

    const resume = await operation(page, 'ops-resumeDownstream')
    t.match(await resume.execute(), { status: 200, text: /"paused": false/ })
    await read.select('wait', 'HANDLED')
    t.match(await read.execute(), { status: 200, text: /"status": "HANDLED"/ })

    for (const id of [
      'tasks-listTasks',
      'ops-listAlarms',
      'ops-listHandlers',
      'ops-listDownstreams',
      'ops-readyz'
    ])
      t.equal((await (await operation(page, id)).execute()).status, 200, id)
    // The browser itself logs the expected 409.
    t.same(
      wrong.filter(line => !/status of 409/.test(line)),
      [],
      'nothing was complained of, and nothing asked for elsewhere'
    )
  }
)

t.test('where keys are needed, Authorize takes one and the calls work', async t => {
  const { url: database, sql } = await testDb(t)
  const { key } = await createKey(sql, {
    name: 'operator',
    scopes: ['tasks:write', 'tasks:read'],
    messageCodes: null,
    who: { name: 'test' }
  })
  const seen = await opened(t, { DATABASE_URL: database, SECRET: secret, AUTH: 'on', DATA_DIR: folder(t) })
  if (!seen) return
  const { page, wrong } = seen

  const post = await operation(page, 'tasks-acceptTask')
  t.match(await post.execute(), { status: 401, text: /UNAUTHORIZED/ })
  await page.locator('.auth-wrapper .authorize').first().click()
  const dialog = page.locator('.dialog-ux')
  await dialog.locator('input').first().fill(key)
  await dialog.locator('button.authorize').first().click()
  await dialog.locator('.btn-done').first().click()
  t.match(await post.execute(), { status: 201 })
  const pause = await operation(page, 'ops-pauseDownstream')
  t.match(await pause.execute(), { status: 403, text: /FORBIDDEN/ }, 'a key may do what it may')
  t.same(
    wrong.filter(line => !/status of 40[13]/.test(line)),
    []
  )
})
