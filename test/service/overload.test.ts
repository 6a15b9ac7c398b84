import { readFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import t from 'tap'
import { eachOf, postUntilTaken, start } from '../support/service.ts'
import { numbered, post, stage } from '../support/stage.ts'

t.setTimeout(600_000)

interface Refusal {
  status: number
  retryAfter: number
}

/** The peak memory of the process, in MB. */
const peakMb = (pid: number): number =>
  Number(/^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]) / 1024

t.test(
  'I36: PostgreSQL stalls under large bodies: 429 or 503 with Retry-After, within bounded memory',
  async t => {
    const on = await stage(t)
    if (!on) return
    const { sql } = on
    const service = await start(t, { ...on.env, ROLE: 'api' })
    const agent = new Agent({ keepAlive: true, maxSockets: Infinity })
    t.teardown(() => agent.destroy())
    const pad = 'x'.repeat(240_000)
    const taskOf = (taskNo: string) => ({
      taskNo,
      messageCode: 'test.plain',
      delay: 3_600_000,
      messageBody: { n: 1, pad }
    })
    const send = (taskNo: string): Promise<Refusal> =>
      new Promise((resolve, reject) => {
        const body = JSON.stringify(taskOf(taskNo))
        const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }
        request(`${service.url}/tasks`, { method: 'POST', agent, headers }, answer => {
          answer.resume().on('end', () =>
            resolve({
              status: answer.statusCode ?? 0,
              retryAfter: Number(answer.headers['retry-after'] ?? 0)
            })
          )
        })
          .on('error', reject)
          .end(body)
      })

    t.equal((await post(service.url, 'before')).status, 201)
    // Another session locks the table, as a careless ALTER TABLE does: every accept waits for it.
    const holder = await sql.reserve()
    await holder`begin`
    await holder`lock table task in access exclusive mode`
    const tasks = numbered('flood', 400)
    // On a busy machine some of them are not sent in time, which is answered 408.
    const answers = (await Promise.all(tasks.map(send))).filter(answer => answer.status !== 408)
    t.ok(answers.length > 0)
    const statuses = new Set(answers.map(answer => answer.status))
    t.same(
      [...statuses].filter(status => ![429, 503].includes(status)),
      [],
      'nobody hears anything else'
    )
    t.same(
      answers.filter(answer => !(answer.retryAfter >= 1)),
      [],
      'each is told when'
    )
    const peak = peakMb(service.pid)
    t.comment(`${Math.round(peak)} MB`)
    t.ok(peak < 600, `${Math.round(peak)} MB at the most`)

    await holder`rollback`
    holder.release()
    const taken = await eachOf(tasks, taskNo => postUntilTaken(() => service.url, taskOf(taskNo)))
    t.equal(taken.length, tasks.length, 'then it takes them all')
    const [row] = await sql<{ n: number }[]>`select count(*) as n from task where task_no like 'flood-%'`
    t.equal(row?.n, tasks.length, 'and they are stored, each once')
  }
)
