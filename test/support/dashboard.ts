// The dashboard in a real browser, with a service whose downstream fails.
import path from 'node:path'
import type { Test } from 'tap'
import type { Page } from 'playwright-core'
import { createKey, scopes, type Scope } from '../../src/db/api-keys.ts'
import { browser } from './chromium.ts'
import { failing } from './failing.ts'
import { testDb } from './postgres.ts'
import { eachOf, folder, secret, start, untilHeard } from './service.ts'
import { tally } from './stage.ts'
import { until } from './until.ts'

const broken = (taskNo: string) =>
  `{"error":"stock ${taskNo.length} of ${taskNo} cannot be booked: the warehouse is closed"}`

/** A service whose downstream fails, with `n` FAILED tasks, and a browser for its dashboard. Undefined: no browser. */
export async function failedTasks(t: Test, n: number) {
  const watched = await browser(t)
  if (!watched) return undefined
  const { url: database, sql } = await testDb(t)
  const downstream = await failing(t, broken)
  const { url } = await start(t, {
    DATABASE_URL: database,
    SECRET: secret,
    AUTH: 'on',
    DATA_DIR: folder(t),
    HANDLERS_DIR: path.resolve(import.meta.dirname, 'story'),
    TEST_SINK: downstream.url,
    TEST_PRODUCER: downstream.url,
    EGRESS_ALLOW: new URL(downstream.url).host
  })
  const keyFor = async (name: string, some: readonly Scope[], messageCodes: string[] | null = null) =>
    (await createKey(sql, { name, scopes: [...some], messageCodes, who: { name: 'test' } })).key
  const admin = await keyFor('ops-1', scopes)
  const call = async (method: string, path: string, body?: unknown, key = admin) => {
    const answer = await fetch(`${url}${path}`, {
      method,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) })
    })
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> }
  }
  /** Posts these tasks and waits until they are FAILED: their downstream is broken, and they have one try. */
  const fail = async (names: readonly string[]) => {
    const before = (await tally(sql))['FAILED'] ?? 0
    const posted = await eachOf(names, async taskNo => {
      const task = { taskNo, messageCode: 'test.plain', messageBody: { n: 1 }, retryTimes: 1 }
      return (await untilHeard(() => call('POST', '/tasks', task))).status
    })
    if (posted.some(status => status > 201)) throw new Error(`posted: ${posted.join()}`)
    await until('all of them FAILED', async () => (await tally(sql))['FAILED'] === before + names.length)
  }
  await fail(Array.from({ length: n }, (_, i) => `order-${i}`))
  return { ...watched, url, sql, downstream, admin, keyFor, call, fail }
}

export async function signIn(page: Page, url: string, key: string): Promise<void> {
  // An open page would ask once more, without its cookie, and report the 401.
  await page.goto('about:blank')
  await page.context().clearCookies()
  await page.goto(`${url}/`)
  await page.locator('input[type=password]').fill(key)
  await page.locator('button[type=submit]').click()
  await page.locator('header').waitFor()
}

/** Calls that are under way are answered 401 then, and the browser reports each: these reports are no faults. */
export async function signOut({ page, wrong }: { page: Page; wrong: string[] }): Promise<void> {
  await page.getByRole('button', { name: 'Sign out' }).click()
  await page.locator('input[type=password]').waitFor()
  // Once another page is open, every report of this one has arrived.
  await page.goto('about:blank')
  wrong.splice(0, wrong.length, ...wrong.filter(text => !text.includes('401')))
}

/** The folder for screenshots. Without SCREENSHOTS none are taken. docs/dashboard.md shows some of them. */
export const screenshots = process.env['SCREENSHOTS']

export async function photograph(page: Page, name: string, fullPage = false): Promise<void> {
  if (screenshots !== undefined)
    await page.screenshot({ path: path.join(screenshots, `${name}.png`), fullPage })
}
