// Where the keyboard and the screen reader are after each step.
import t from 'tap'
import { failedTasks, signIn } from '../support/dashboard.ts'

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

  await t.test('More keeps the focus, and the way back leads to as many rows', async () => {
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

  await t.test('a question that leads to another page leaves the focus at its heading', async () => {
    downstream.mend()
    await page.goto(`${url}/ui/failures`)
    await page.locator('li.group').waitFor()
    await page.keyboard.press('j')
    await page.keyboard.press('r')
    await page.locator('dialog[open]').waitFor()
    await page.locator('dialog[open] button[type=submit]').press('Enter')
    await heading('Redelivery')
  })
  t.same(wrong, [])
})
