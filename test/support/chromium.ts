// A real browser for the tests of pages: the system's Chromium, driven by playwright-core.
import { existsSync } from 'node:fs'
import { chromium, type Page } from 'playwright-core'
import type { Test } from 'tap'
import { folder } from './service.ts'

const paths = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome']
const none = `no Chromium: put one at ${paths[0]}`

export interface Watched {
  page: Page
  /** Errors and warnings of the console, uncaught errors of the page, and requests that left loopback. */
  wrong: string[]
}

/** A page in a fresh profile. `flags` are passed to Chromium. Undefined: no Chromium; the test is skipped, or fails with CI=true. */
export async function browser(t: Test, flags: readonly string[] = []): Promise<Watched | undefined> {
  const executablePath = paths.find(path => existsSync(path))
  if (executablePath === undefined) {
    // On a build machine a silent skip would hide that these tests do not run.
    if (process.env['CI'] === 'true') t.fail(none)
    else t.comment(`SKIP ${none}`)
    return undefined
  }
  const context = await chromium.launchPersistentContext(folder(t), {
    executablePath,
    headless: true,
    viewport: { width: 1280, height: 1600 },
    args: [
      '--headless',
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      ...flags
    ]
  })
  t.teardown(() => context.close())
  const page = context.pages()[0] ?? (await context.newPage())
  // Long, as it only ends a hang: a busy machine is slow.
  page.setDefaultTimeout(60_000)
  const wrong: string[] = []
  page.on('console', message => {
    if (message.type() === 'error' || message.type() === 'warning') wrong.push(message.text())
  })
  page.on('pageerror', error => wrong.push(error.message))
  context.on('request', request => {
    const { protocol, hostname } = new URL(request.url())
    if (protocol.startsWith('http') && hostname !== '127.0.0.1') wrong.push(request.url())
  })
  return { page, wrong }
}
