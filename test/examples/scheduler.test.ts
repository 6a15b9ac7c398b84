// Takes long: npm run test:long.
import { existsSync } from 'node:fs'
import t from 'tap'
import { example, holds } from '../support/example.ts'
import { isRunning } from '../support/presence.ts'

t.test('three schedulers run the same cron line, and the work of each tick is done once', async t => {
  const lines = await holds(t, 'scheduler')
  t.ok(lines.some(line => line.includes('3 schedulers post a tick every 500 ms')))
})

t.test('Ctrl-C in the middle of an example ends all that it started, and leaves nothing behind', async t => {
  const running = example(t, 'scheduler', '--count', '100000', '--verbose')
  const [, folder = ''] = await running.said(/(\/\S+\/ackbox-example-\w+)\//)
  await running.said(/schedulers post a tick/)
  const pids = running.lines.flatMap(line => {
    const [, pid] = /is ready, pid (\d+)$/.exec(line) ?? []
    return pid ? [Number(pid)] : []
  })
  t.equal(pids.length, 5)
  t.ok(existsSync(folder))
  t.equal(await running.stop('SIGINT'), 130)
  t.same(pids.filter(isRunning), [])
  t.notOk(existsSync(folder))
})

t.test('the runner says which examples there are', async t => {
  const asked = example(t, '--help')
  t.equal(await asked.exited, 0)
  t.ok(asked.lines.some(line => line.startsWith('  scheduler ')))
  t.notOk(asked.lines.some(line => line.startsWith('  runner')))
  for (const wrong of [
    ['none-such'],
    ['runner'],
    ['../chaos'],
    ['scheduler', '--kill', 'often'],
    ['--what'],
    []
  ]) {
    const refused = example(t, ...wrong)
    t.equal(await refused.exited, 2, wrong.join(' '))
  }
})
