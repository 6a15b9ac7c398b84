// A reader who follows docs/getting-started.md gets a working handler with a receipt. test:package covers the first step.
import { execFileSync } from 'node:child_process'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import { dataFolder } from '../support/cluster.ts'
import { program, without } from '../support/program.ts'
import { folder, start } from '../support/service.ts'
import { until } from '../support/until.ts'
import { commands, page } from './markdown.ts'

const root = path.resolve(import.meta.dirname, '../../..')
const { blocks } = page(root, 'docs/getting-started.md')
const code = (language: string): string => blocks.find(block => block.language === language)?.text ?? ''
const calls = blocks
  .flatMap(({ language, text }) => (language === 'sh' ? commands(text) : []))
  .filter(line => line.startsWith('curl '))

t.test(
  'a task that was posted before its receiver was there is HANDLED by its receipt',
  { skip: without('curl') },
  async t => {
    // Inside the project, so that `ackbox/handler` resolves to this package.
    const handlers = path.join(root, 'dist', `started-${process.pid}`)
    mkdirSync(handlers)
    t.teardown(() => rmSync(handlers, { recursive: true, force: true }))
    writeFileSync(path.join(handlers, 'parcel-sent.ts'), code('ts'))
    const hello = page(root, 'examples/project/handlers/hello.ts').text
    writeFileSync(path.join(handlers, 'hello.ts'), hello)
    const at = String(await freePort())
    const service = await start(t, {
      HANDLERS_DIR: handlers,
      TRACKER_URL: `http://127.0.0.1:${at}`,
      DATA_DIR: await dataFolder(t)
    })
    const call = (line: string | undefined): string =>
      execFileSync('bash', ['-c', (line ?? '').replaceAll('http://127.0.0.1:3000', service.url)], {
        encoding: 'utf8'
      })

    t.equal(calls.length, 5)
    t.match(call(calls[0]), '"status":"SENDING"', 'the first task is accepted')
    t.match(
      call(calls[1]),
      /"status":"HANDLED".*"handledBy":"(receipt|answer)"/,
      'and confirmed by the demo receiver'
    )
    t.match(call(calls[2]), '"status":"SENDING"', 'nobody is there for the second one')
    let seen = ''
    await until(
      () => `an attempt found nobody: ${seen}`,
      () => (seen = call(calls[3])).includes('connection_refused')
    )

    const tracker = path.join(folder(t), 'tracker.mjs')
    writeFileSync(tracker, code('js').replace('8080', at).replace('http://127.0.0.1:3000', service.url))
    const running = program(t, process.execPath, [tracker], { env: {} })
    t.match(call(calls[4]), /"status":"HANDLED".*"handledBy":"receipt"/)
    await running.said(/^receipt: 200 .*"applied":true/)
    t.match(running.lines[0], 'parcel-7-sent: {"parcelId":"7","to":"Zürich"}')
  }
)
