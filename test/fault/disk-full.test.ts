// The disk of PostgreSQL is full: a small tmpfs, filled up by a file.
import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chmodSync, closeSync, openSync, rmSync, writeSync } from 'node:fs'
import path from 'node:path'
import t, { type Test } from 'tap'
import { ownPostgres } from '../support/own-postgres.ts'
import { call, eachOf, folder, postUntilTaken, start } from '../support/service.ts'
import { numbered, stage, statusAtLast, tally } from '../support/stage.ts'
import { stopwatch } from '../support/stopwatch.ts'

t.setTimeout(600_000)

/** A tmpfs of that size. Undefined: it cannot be mounted (only root may), and the test is skipped. */
function smallDisk(t: Test, megabytes: number): string | undefined {
  const dir = folder(t)
  const { status, stderr } = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m`, 'ackbox', dir])
  if (status !== 0) {
    const why = `no tmpfs can be mounted: ${String(stderr).trim()}`
    if (process.env['CI'] === 'true') t.fail(why)
    else t.comment(`SKIP ${why}`)
    return undefined
  }
  chmodSync(dir, 0o755)
  t.teardown(() => spawnSync('umount', ['-l', dir]))
  return dir
}

/** Fills the disk. Returns the function that frees it again. */
function fill(dir: string): () => void {
  const file = path.join(dir, 'filler')
  const fd = openSync(file, 'w')
  for (const size of [1 << 20, 4096]) {
    try {
      for (;;) if (writeSync(fd, Buffer.alloc(size)) < size) break
    } catch {} // full
  }
  closeSync(fd)
  return () => rmSync(file)
}

t.test(
  'no room for a task: 503 in time, nothing half stored, and back by itself once there is room',
  async t => {
    const disk = smallDisk(t, 180)
    const on = await stage(t, { patient: true })
    if (disk === undefined || !on) return
    const postgres = await ownPostgres(t, disk)
    const service = await start(t, { ...on.env, DATABASE_URL: postgres.url })
    // Random, so that PostgreSQL cannot compress it into its free pages.
    const taskOf = (taskNo: string): object => ({
      taskNo,
      messageCode: 'test.plain',
      messageBody: { n: 1, load: randomBytes(90_000).toString('hex') }
    })
    const tasks = numbered('full', 16).map(taskOf)
    const free = fill(disk)
    const heard = []
    for (const task of tasks) {
      const began = stopwatch(t)
      const answer = await fetch(`${service.url}/tasks`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(task)
      })
      await answer.arrayBuffer()
      heard.push({
        status: answer.status,
        ms: began(),
        retry: answer.headers.get('retry-after')
      })
    }
    const refused = heard.filter(one => one.status === 503)
    t.ok(refused.length > 0, `${refused.length} of ${heard.length} found no room`)
    t.same(
      heard.filter(one => ![201, 503].includes(one.status)),
      [],
      'a task is stored, or refused for now'
    )
    t.ok(
      refused.every(one => Number(one.retry) >= 1 && one.ms < 3_000),
      'in time, and it says when to come back'
    )
    t.equal((await call(`${service.url}/healthz`)).status, 200, 'the process lives')
    free()
    await eachOf(tasks, task => postUntilTaken(() => service.url, task))
    const ends = await eachOf(numbered('full', 16), taskNo => statusAtLast(service.url, taskNo))
    t.same(new Set(ends), new Set(['HANDLED']))
    t.same(await tally(postgres.sql), { HANDLED: 16 })
  }
)
