// The whole program of docs/producers/sdk.md, in both languages, does what the page says.
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { program } from '../support/program.ts'
import { start } from '../support/service.ts'
import { stage } from '../support/stage.ts'
import { page } from './markdown.ts'

const root = path.resolve(import.meta.dirname, '../../..')

t.test('a program that enqueues in its own transaction prints that its task is HANDLED', async t => {
  const on = await stage(t)
  if (!on) return
  const service = await start(t, on.env)
  // Inside the project, so that `ackbox/producer` resolves to this package.
  const folder = path.join(root, 'dist', `producer-${process.pid}`)
  mkdirSync(folder)
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  for (const name of ['docs/producers/sdk.md', 'docs/zh/producers/sdk.md']) {
    const { blocks } = page(root, name)
    const text = blocks.find(({ language }) => language === 'js')?.text ?? ''
    t.match(text, 'http://127.0.0.1:3000')
    const file = path.join(folder, 'pay.mjs')
    writeFileSync(
      file,
      text
        .replace('http://127.0.0.1:3000', service.url)
        .replace("'hello', messageBody: { name: 'world' }", "'test.plain', messageBody: { n: 1 }")
    )
    const running = program(t, process.execPath, [file], { env: { DATABASE_URL: on.databaseUrl } })
    await running.said(/^\S+ HANDLED$/)
  }
})
