import path from 'node:path'
import { request } from 'undici'
import t from 'tap'
import { call, settled, start } from '../support/service.ts'
import { stage } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.test(
  'a promise that a handler forgot is logged with the name of the handler, and the process lives',
  async t => {
    const on = await stage(t)
    if (!on) return
    const service = await start(t, {
      ...on.env,
      HANDLERS_DIR: path.resolve(import.meta.dirname, '../support/weird')
    })
    const post = (taskNo: string, n: number) =>
      call(`${service.url}/tasks`, { taskNo, messageCode: 'test.rejecting', messageBody: { n } })
    t.match(await post('async-check', 0), { status: 422, body: { code: 'INVALID' } })
    for (let n = 1; n <= 12; n++) {
      t.match(await post(`task-${n}`, n), { status: 201 })
      t.match(await settled(service.url, `task-${n}`), { body: { status: 'HANDLED' } })
    }
    const metric = async (messageCode: string): Promise<number> => {
      const { body } = await request(`${service.url}/metrics`)
      const found = new RegExp(`ackbox_hook_rejections_total\\{message_code="${messageCode}"\\} (\\d+)`)
      return Number(found.exec(await body.text())?.[1])
    }
    await until('all are counted', async () => (await metric('test.rejecting')) === 13)
    t.equal(
      await metric('unknown'),
      24,
      'a text has no stack, and an error of a library no line of a handler'
    )
    const lines = service
      .stdout()
      .split('\n')
      .filter(line => line.includes('"hook.rejected"'))
      .map(line => JSON.parse(line) as object)
    t.match(lines[0], {
      level: 50,
      messageCode: 'test.rejecting',
      place: /^rejecting\.js, line \d+$/,
      err: { message: 'nobody waits for this' },
      times: 1
    })
    t.equal(lines.length, 6, 'each place at its 1st and its 10th time')
    t.match(
      lines.find(line => JSON.stringify(line).includes('of a library')),
      { messageCode: 'unknown', times: 1 }
    )
    t.match(await service.kill('SIGTERM'), { code: 0 })
  }
)

t.test('an exception that nothing catches still ends the process', async t => {
  const on = await stage(t)
  if (!on) return
  const service = await start(t, {
    ...on.env,
    HANDLERS_DIR: path.resolve(import.meta.dirname, '../support/throwing')
  })
  await call(`${service.url}/tasks`, { taskNo: 'one', messageCode: 'test.throwing', messageBody: {} }).catch(
    () => {}
  )
  t.match(await service.exited, { code: 1 })
  t.match(service.output(), /"msg":"crash"/)
})
