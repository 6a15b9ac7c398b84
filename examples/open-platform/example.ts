// The story of this example: npm run example -- open-platform
import { ddl as consumerTables } from 'ackbox/consumer'
import { ddl as producerTables } from 'ackbox/producer'
import type { Example } from '../runner/example.ts'
import type { Stage } from '../runner/stage.ts'
import {
  compared,
  partners,
  reconciled,
  type Difference,
  type Material,
  type Partner,
  type Shown
} from './books.ts'
import { forge, insistOnJava, kafka, library } from './servers.ts'

const platformTables = `${producerTables.postgres}
create table material (id integer primary key, title text not null, published_at timestamptz not null default now());
`
// The table has no unique key, so a material that is shown twice is detected.
const partnerTables = `${consumerTables.postgres}
create table shown (id bigint generated always as identity primary key, task_no text not null, material integer not null, title text not null);
`
const atOnce = 8
/** The number of materials that search loses when it is restored from a backup. */
const lost = 3

export const example: Example = {
  title:
    'one material for four partners: two over HTTP with receipts, one by Dubbo, one on Kafka; reconciled at the end',
  invariant: 'every material is with every partner once, and Ackbox and the partners agree on it',
  count: 40,
  async play(stage) {
    insistOnJava()
    const began = new Date(Date.now() - 60_000)
    const { ackbox, platform, broker } = await open(stage)
    await forge(broker)
    stage.step('a stranger has written records to the topic, which nobody may show')
    const rows = (partner: Partner) =>
      stage.rows<Shown>(partner, 'select task_no as "taskNo", material, title from shown')
    const published = () => stage.rows<Material>('platform', 'select id, title from material order by id')
    const isEverywhere = async (): Promise<boolean> => {
      const materials = (await published()).length
      const counts = await Promise.all(partners.map(async partner => (await rows(partner)).length))
      return counts.every(count => count >= materials)
    }
    const reconcile = async (partner: Partner): Promise<Difference[]> => {
      const taskNos = (await rows(partner)).map(({ taskNo }) => taskNo)
      const { differences } = await stage.call<{ differences: Difference[] }>(`${ackbox}/reconcile`, {
        downstream: partner,
        from: began.toISOString(),
        to: new Date(Date.now() + 1_000).toISOString(),
        taskNos
      })
      return differences
    }
    const untilEnded = async (): Promise<void> => {
      await stage.until('every partner has every material', isEverywhere)
      await stage.until('Ackbox has no task on its way', async () => {
        const { tasks } = await stage.call<{ tasks: unknown[] }>(`${ackbox}/tasks?status=SENDING`)
        return tasks.length === 0
      })
    }

    await stage.work(stage.count, async (from, to) => {
      let next = from
      const author = async (): Promise<void> => {
        while (next <= to) await stage.call(`${platform}/materials/${next++}`, {})
      }
      await Promise.all(Array.from({ length: atOnce }, author))
      stage.step(`materials ${from} to ${to} are published`)
      await stage.until(`materials ${from} to ${to} are everywhere`, isEverywhere)
    })
    await untilEnded()
    const wrong: string[] = []
    for (const partner of partners) wrong.push(...reconciled(partner, await reconcile(partner)))
    stage.step(`${stage.count} materials are reconciled with ${partners.length} partners`)

    wrong.push(...(await loseSome(stage, ackbox, reconcile)))
    await untilEnded()
    for (const partner of partners) wrong.push(...reconciled(partner, await reconcile(partner)))

    const materials = await published()
    const shown = await Promise.all(partners.map(rows))
    stage.step(
      `${materials.length} materials; shown: ${partners.map((partner, at) => `${partner} ${shown[at]?.length}`).join(', ')}`
    )
    return [
      ...wrong,
      ...(materials.length === stage.count
        ? []
        : [`${materials.length} materials instead of ${stage.count}`]),
      ...partners.flatMap((partner, at) => compared(materials, partner, shown[at] ?? []))
    ]
  }
}

/** Search is restored from an older backup: reconcile reports the lost materials, and an operator delivers them again. */
async function loseSome(
  stage: Stage,
  ackbox: string,
  reconcile: (partner: Partner) => Promise<Difference[]>
): Promise<string[]> {
  const taskNos = Array.from({ length: Math.min(lost, stage.count) }, (_, at) => `material-${at + 1}`)
  const list = taskNos.map(taskNo => `'${taskNo}'`).join(', ')
  // The backup has neither the work nor the row of ackbox_received: both are in the same database.
  for (const table of ['shown', 'ackbox_received'])
    await stage.rows('search', `delete from ${table} where task_no in (${list})`)
  const differences = await reconcile('search')
  stage.step(
    `search has lost ${taskNos.length}; reconcile names ${differences.length}, which are delivered again`
  )
  for (const { taskNo } of differences)
    await stage.call(`${ackbox}/tasks/${taskNo}/redeliver`, { downstream: 'search', force: true })
  return reconciled('search', differences, taskNos)
}

/** Starts everything. */
async function open(stage: Stage): Promise<{ ackbox: string; platform: string; broker: string }> {
  const [platformPort, reviewPort, searchPort] = [await stage.port(), await stage.port(), await stage.port()]
  stage.step('the Dubbo provider is built and Kafka is started; the first time Maven fetches both')
  const databases = new Map<string, string>()
  for (const name of ['platform', ...partners])
    databases.set(name, await stage.database(name, name === 'platform' ? platformTables : partnerTables))
  const of = (name: string): string => databases.get(name) ?? ''
  const [broker, provider] = await Promise.all([kafka(stage), library(stage, of('library'))])
  const url = (port: number): string => `http://127.0.0.1:${port}`
  const ackbox = await stage.ackbox({
    REVIEW_URL: url(reviewPort),
    SEARCH_URL: url(searchPort),
    BROKER_DUBBO: provider,
    BROKER_KAFKA: `kafka://${broker}`
  })
  const partner = (name: Partner, port: number, slowMs: string) =>
    stage.program(name, 'partner.js', {
      NAME: name,
      SLOW_MS: slowMs,
      DATABASE_URL: of(name),
      SIGNING_SECRET: stage.secret(name),
      ACKBOX_URL: ackbox,
      PORT: String(port)
    })
  await Promise.all([
    partner('review', reviewPort, '400'),
    partner('search', searchPort, '0'),
    stage.program('feed', 'feed.js', {
      DATABASE_URL: of('feed'),
      SIGNING_SECRET: stage.secret('feed'),
      KAFKA: broker
    }),
    stage.program('platform', 'platform.js', { DATABASE_URL: of('platform'), PORT: String(platformPort) }),
    stage.command(
      'relay',
      ['ackbox', 'relay', '--to', ackbox],
      { ACKBOX_RELAY_FROM: of('platform') },
      /relay\.ready/
    )
  ])
  return { ackbox, platform: url(platformPort), broker }
}
