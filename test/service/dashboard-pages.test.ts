import { mkdirSync } from 'node:fs'
import path from 'node:path'
import axe from 'axe-core'
import t from 'tap'
import { failedTasks, screenshots, signIn } from '../support/dashboard.ts'
import { folder } from '../support/service.ts'
import { tally } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(900_000)

const evil = '<script>window.hacked=1</script><img src=x onerror="window.hacked=1">'

interface Violation {
  id: string
  impact: string
  nodes: { html: string; failureSummary: string }[]
}

t.test(
  'every page, wide and narrow, light and dark, in two languages: whole, plain and for everybody',
  async t => {
    const on = await failedTasks(t, 12)
    if (!on) return
    const { page, wrong, url, sql, downstream, call } = on
    const done = async (path: string, body?: unknown) => {
      const { status, body: said } = await call('POST', path, body)
      if (status >= 300) throw new Error(`${path}: ${status} ${JSON.stringify(said)}`)
      return said
    }
    const task = (taskNo: string, more: object = {}) =>
      done('/tasks', { taskNo, messageCode: 'test.plain', messageBody: { n: 1 }, retryTimes: 1, ...more })
    downstream.break(() => evil)
    await task('hostile-1', { bizType: evil.slice(0, 60), bizKey: evil, extend: { note: evil } })
    await until('it FAILED too', async () => (await tally(sql))['FAILED'] === 13)
    downstream.mend()
    for (let n = 0; n < 30; n++) await task(`paid-${n}`)
    await until('these are HANDLED', async () => (await tally(sql))['HANDLED'] === 30)
    downstream.break()
    await task('waits-1', { retryTimes: 9 })
    await done('/downstreams/plain/pause')
    await task('paused-1')
    await task('after-1', { after: ['paused-1'] })
    await sql`
    insert into outbox_rejected (id, task_no, message_code, message_body, scene_type, created_by, problem)
    values (gen_random_uuid(), ${evil}, ${evil}, '{}', '', 'sql:shop', ${sql.json({ status: 422, code: 'UNKNOWN_CODE', detail: evil })})`
    await done('/tasks/hostile-1/settle', { status: 'HANDLED', reason: evil })
    const { id } = (await done('/tasks/redeliver', { filter: { taskNoPrefix: 'order-1' } })) as { id: string }
    // As if the minute before had been a busy one.
    await until('counts are written', async () => (await sql`select from stat_minute`).length > 0)
    await sql`
    insert into stat_minute
    select date_trunc('minute', now()) - n * interval '1 minute', 'story', downstream, message_code,
      (40 + 25 * sin(n / 5.0))::int, (42 + 25 * sin(n / 5.0))::int, 2, (39 + 25 * sin(n / 5.0))::int, 35, 1, 1,
      array[0, 0, 1, 4, 9, 12, 8, 3, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    from generate_series(1, 58) n, (values ('plain', 'test.plain'), ('', 'test.plain')) v (downstream, message_code)`
    await done('/api-keys', { name: 'dashboard', scopes: ['ops:read'] })

    await signIn(page, url, on.admin)
    const shots = screenshots ?? folder(t)
    mkdirSync(shots, { recursive: true })
    const views: Record<string, [path: string, ready: string]> = {
      overview: ['overview', '.chart canvas'],
      downstreams: ['downstreams', 'main table'],
      tasks: ['tasks', 'main table'],
      task: ['task?no=order-3', '.timeline'],
      waiting: ['task?no=paused-1', '.waits'],
      hostile: ['task?no=hostile-1', '.timeline'],
      failures: ['failures', '.group'],
      operation: [`operation?id=${id}`, '#progress'],
      held: ['held', 'main table'],
      alarms: ['alarms', 'main table'],
      nodes: ['nodes', 'main table'],
      keys: ['keys', 'main table'],
      audit: ['audit', 'main table']
    }
    const violations: string[] = []
    for (const [name, [to, ready]] of Object.entries(views)) {
      await page.goto(`${url}/ui/${to}`)
      await page.locator(ready).first().waitFor()
      await page.evaluate(axe.source)
      for (const lang of ['EN', '中文']) {
        await page.locator('header button', { hasText: lang }).click()
        for (const colorScheme of ['light', 'dark'] as const)
          for (const width of [1440, 390]) {
            await page.emulateMedia({ colorScheme })
            await page.setViewportSize({ width, height: width === 390 ? 844 : 900 })
            const where = `${name}-${width}-${colorScheme}-${lang === 'EN' ? 'en' : 'zh'}`
            const overflow = (await page.evaluate(
              'document.documentElement.scrollWidth - document.documentElement.clientWidth'
            )) as number
            t.ok(overflow <= 0, `${where} fits: ${overflow} px too wide`)
            await page.screenshot({ path: path.join(shots, `${where}.png`), fullPage: true })
            // The Chinese pages have the same parts and colours.
            if (lang !== 'EN') continue
            const found = (await page.evaluate(
              "axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations)"
            )) as Violation[]
            for (const { id: rule, impact, nodes } of found)
              if (['serious', 'critical'].includes(impact))
                violations.push(
                  `${where}: ${rule}: ${nodes[0]?.html.slice(0, 160)}: ${nodes[0]?.failureSummary.slice(0, 200)}`
                )
          }
      }
    }
    t.same(violations, [], 'axe-core finds nothing serious')
    t.equal(await page.evaluate('window.hacked'), undefined)
    t.equal(await page.locator('main script, main img').count(), 0)
    await page.goto(`${url}/ui/task?no=hostile-1&lang=en`)
    await page.locator('.timeline').waitFor()
    t.match(
      await page.locator('main').innerText(),
      /<script>window\.hacked=1<\/script>/,
      'what is hostile stays text'
    )
    t.same(wrong, [])
  }
)
