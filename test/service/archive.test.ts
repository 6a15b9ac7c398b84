// A process that dies between the archive and the removal.
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { findArchived } from '../../src/service/archive.ts'
import { age } from '../support/aged.ts'
import { call, folder, launch, start } from '../support/service.ts'
import { stage } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(600_000)

const program = fileURLToPath(new URL('../../src/cli/ackbox.js', import.meta.url))

async function archive(
  env: Record<string, string | undefined>,
  ...args: string[]
): Promise<{ code: number; out: string; err: string }> {
  return await new Promise(resolve => {
    const all = { ...env, PATH: process.env['PATH'] }
    const child = execFile(
      process.execPath,
      [program, 'archive', ...args],
      { env: all },
      (_error, out, err) => resolve({ code: child.exitCode ?? -1, out, err })
    )
  })
}

t.test(
  'a kill -9 between archive and removal archives twice, and never not at all; one is brought back',
  async t => {
    const on = await stage(t)
    if (!on) return
    const { sql } = on
    await age(sql, { name: 'old', n: 150, days: 9, status: 'HANDLED' })
    await age(sql, { name: 'open', n: 3, days: 50, status: 'SENDING' })
    await sql`update delivery set next_action_at = now() + interval '1 hour' where status = 0`
    const dir = folder(t)
    const env = { ...on.env, RETENTION_DAYS: '7', ARCHIVE: `file:${dir}` }
    const killed = launch(t, { ...env, PORT: '0', FAILPOINTS: 'archive.after_write=kill#2' })
    t.match(await killed.exited, { signal: 'SIGKILL' })
    t.equal((await sql`select from task where task_no like 'old-%'`).length, 150, 'nothing was removed yet')
    const found = async (n: number) => (await findArchived(dir, `old-${n}`)).length
    t.equal(await found(1), 1, 'and all of it is archived')

    const service = await start(t, env)
    await until(
      'the old ones are gone',
      async () => (await sql`select from task where task_no like 'old-%'`).length === 0
    )
    for (const n of [1, 75, 150]) t.equal(await found(n), 1, `old-${n} is there once for a reader`)
    t.equal((await findArchived(dir, 'open-1')).length, 0, 'what is open is not archived')

    const shown = await archive(env, 'find', 'old-75')
    t.match(shown, {
      code: 0,
      err: '',
      out: /^old-75 {2}test\.plain {2}posted .+\n.*id .+\n.*in .+\.ndjson\.gz\n.*body \{"n":1\}\n {2}plain {2}HANDLED\n {4}attempt 1 .*delivered/
    })
    t.match(await archive(env, 'restore', 'old-75'), { code: 0, out: /^old-75 is back\. .* 7 days/ })
    t.match(await call(`${service.url}/tasks/old-75`), { status: 200, body: { status: 'HANDLED' } })
    t.match(await archive(env, 'restore', 'old-75'), { code: 1, err: /^old-75 exists/ })
    t.match(await archive(env, 'find', 'nobody'), { code: 1, err: /^nobody is not in the archive/ })
    t.match(await archive({ ...env, ARCHIVE: 'none' }, 'find', 'old-1'), {
      code: 1,
      err: /ARCHIVE is not set/
    })
    t.match(await call(`${service.url}/tasks/open-1`), { status: 200, body: { status: 'SENDING' } })
  }
)
