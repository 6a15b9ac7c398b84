// The story of this example: npm run example -- scheduler
import { ddl } from 'ackbox/consumer'
import type { Example } from '../runner/example.ts'

const schedulers = 3
const everyMs = 500
const [accounts, fee] = [10, 7]
const tables = `${ddl.postgres}
create table run (id bigint generated always as identity primary key, tick timestamptz not null);
create table account (id integer primary key, fee integer not null, charged integer not null default 0);
insert into account (id, fee) select n, ${fee} from generate_series(1, ${accounts}) n;
`

export const example: Example = {
  title: 'dispatch once: several schedulers run the same cron line, and the work of each tick is done once',
  invariant: 'the work of every tick was done once, although every scheduler posted it',
  count: 12,
  async play(stage) {
    const port = await stage.port()
    const [url, database] = await Promise.all([
      stage.ackbox({ BILLING_URL: `http://127.0.0.1:${port}` }),
      stage.database('billing', tables)
    ])
    await stage.program('billing', 'billing.js', {
      DATABASE_URL: database,
      SIGNING_SECRET: stage.secret('billing'),
      ACKBOX_URL: url,
      PORT: String(port)
    })
    const first = Math.ceil(Date.now() / 1_000) * 1_000
    const tickOf = (number: number): string => new Date(first + (number - 1) * everyMs).toISOString()
    for (let number = 1; number <= schedulers; number++)
      await stage.program(`scheduler-${number}`, 'scheduler.js', {
        ACKBOX_URL: url,
        FIRST_TICK: tickOf(1),
        EVERY_MS: String(everyMs)
      })
    stage.step(`${schedulers} schedulers post a tick every ${everyMs} ms, from ${tickOf(1)} on`)

    await stage.work(stage.count, async (from, to) => {
      await stage.until(`the work of tick ${to} is done`, async () => {
        const [row] = await stage.rows<{ done: number }>(
          'billing',
          `select count(distinct tick)::int as done from run where tick <= '${tickOf(to)}'`
        )
        return row?.done === to
      })
      stage.step(`the work of ticks ${from} to ${to} is done`)
    })
    return await check()

    async function check(): Promise<string[]> {
      const wrong: string[] = []
      const runs = await stage.rows<{ tick: Date; times: number; charges: number }>(
        'billing',
        `select tick, count(*)::int as times, (select sum(charged / fee)::int from account) as charges
         from run group by tick order by tick`
      )
      for (const { tick, times } of runs)
        if (times !== 1) wrong.push(`the work of ${tick.toISOString()} was done ${times} times`)
      for (let number = 1; number <= stage.count; number++)
        if (!runs.some(run => run.tick.toISOString() === tickOf(number)))
          wrong.push(`the work of ${tickOf(number)} was not done`)
      const charges = runs[0]?.charges
      if (charges !== runs.length * accounts)
        wrong.push(`${accounts} accounts were charged ${charges} times in ${runs.length} runs`)
      stage.step(`${runs.length} ticks so far: ${runs.length} runs, and each account was charged as often`)
      return wrong
    }
  }
}
