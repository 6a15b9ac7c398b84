import { createHash } from 'node:crypto'
import t from 'tap'
import { profiles, readOptions } from '../../chaos/options.ts'
import type { Charge } from '../../chaos/judge/finding.ts'
import type { Order } from '../../chaos/producers/books.ts'
import { judgeProducers, type ProducerHistory } from '../../chaos/producers/judge.ts'
import { startFaults } from '../../chaos/producers/nemesis.ts'
import {
  actions,
  planFaults,
  planWork,
  pointsOf,
  steps,
  ways,
  type Work
} from '../../chaos/producers/plan.ts'
import type { Stand } from '../../chaos/producers/stand.ts'
import { parseFailpoints } from '../../src/runtime/failpoint.ts'
import { arrival, exit, fault, receipt, start, task } from './told.ts'

const work: Work = { atMs: 0, taskNo: 'a', way: 'postgres', messageCode: 'chaos.plain', body: '{"n":1.0}' }
const order: Order = {
  taskNo: 'a',
  way: 'postgres',
  messageCode: 'chaos.plain',
  body: '{"n":1.0}',
  after: []
}
const waiting: Order = { ...order, taskNo: 'b', way: 'post', after: ['a'] }
const afterwards = arrival({ taskNo: 'b', at: start + 200 })
const both = [task(), task({}, { taskNo: 'b' })]
const wrong = { ...work, isWrong: true as const }
const hash = createHash('sha256').update(order.body).digest('hex')

/** One committed order whose task arrived and is HANDLED. */
const history = (more: Partial<ProducerHistory> = {}): ProducerHistory => ({
  seed: 1,
  planned: [work, { ...work, taskNo: 'b', way: 'post' }],
  begun: ['a', 'b'],
  orders: [order],
  arrivals: [arrival({ hash })],
  receipts: [],
  tasks: [task(), { taskNo: 'b', status: '404', deliveries: [], missing: true }],
  waiting: [],
  rejected: [],
  faults: [],
  exits: [],
  points: {},
  checks: {},
  interrupted: false,
  ...more
})

const owed: Order = { ...order, messageCode: 'chaos.receipt' }
const inTurn = (more: Partial<ProducerHistory> = {}) =>
  history({ orders: [order, waiting], arrivals: [arrival(), afterwards], tasks: both, ...more })
const withReceipt = (at: number) =>
  inTurn({
    orders: [owed, waiting],
    arrivals: [arrival({ downstream: 'receipted', owed: true }), afterwards],
    receipts: [receipt({}, { at: start + at })]
  })

const unready = (name: string, action: string) =>
  history({
    exits: [exit({ name, starting: true, launchedAt: start, at: start + 900 })],
    faults: [fault(action, -100, 500)]
  })

/** Each guilty history, with the one charge that it must bring, and a similar innocent history. */
const stories: [title: string, charge: Charge, guilty: ProducerHistory, innocent: ProducerHistory][] = [
  ['committed, and it never arrived', 'lost', history({ arrivals: [] }), history()],
  ['it arrived, and nobody committed it', 'unexpected', history({ orders: [] }), history()],
  [
    'it arrived, and is no task',
    'unexpected',
    history({ planned: [wrong], rejected: ['a'] }),
    history({ planned: [wrong], rejected: ['a'], arrivals: [] })
  ],
  ['another body arrived', 'corrupted', history({ arrivals: [arrival({ hash: 'other' })] }), history()],
  ['a wrong signature', 'corrupted', history({ arrivals: [arrival({ signed: false })] }), history()],
  ['it is still on its way', 'stuck', history({ tasks: [task({ status: 'SENDING' })] }), history()],
  ['its row is still in the outbox', 'stuck', history({ waiting: ['a'] }), history()],
  [
    'never committed, and still PREPARED',
    'stuck',
    history({ tasks: [task(), { taskNo: 'b', status: 'PREPARED', deliveries: [] }] }),
    history({ tasks: [task(), { taskNo: 'b', status: 'CANCELLED', deliveries: [] }] })
  ],
  [
    'no task, and nobody can see it',
    'dropped',
    history({ planned: [wrong], arrivals: [] }),
    history({ planned: [wrong], arrivals: [], rejected: ['a'] })
  ],
  ['a good one is among the rejected', 'refused', history({ rejected: ['a'] }), history()],
  [
    'sent before what it waits for had arrived',
    'released',
    inTurn({ arrivals: [arrival(), { ...afterwards, at: start + 49 }] }),
    inTurn()
  ],
  [
    'sent before what it waits for was written down as HANDLED',
    'released',
    inTurn({ arrivals: [arrival(), { ...afterwards, builtAt: start + 55 }] }),
    inTurn({ arrivals: [arrival(), { ...afterwards, builtAt: start + 71 }] })
  ],
  ['sent before the receipt of what it waits for', 'released', withReceipt(300), withReceipt(100)],
  [
    'a process ended by itself',
    'crashed',
    history({ exits: [exit()] }),
    history({ exits: [exit({ code: null, signal: 'SIGKILL' })] })
  ],
  [
    'a process did not end well at SIGTERM',
    'crashed',
    history({ exits: [exit({ by: 'term', code: 1, signal: null })] }),
    history({ exits: [exit({ by: 'term', code: 0, signal: null })] })
  ],
  [
    'a process that never became ready, with all databases up',
    'crashed',
    history({ exits: [exit({ starting: true })] }),
    unready('relay-postgres-1', 'shop.stop')
  ],
  [
    'a process that never became ready while one was away that it does not use',
    'crashed',
    unready('relay-mariadb-1', 'shop.stop'),
    unready('relay-mariadb-1', 'mariadb.kill')
  ],
  [
    'a process that never became ready while another process was killed',
    'crashed',
    unready('service-1', 'kill.producer'),
    unready('service-1', 'postgres.backends')
  ]
]

for (const [title, charge, guilty, innocent] of stories) {
  t.test(`${charge}: ${title}`, async t => {
    const verdict = judgeProducers(guilty, 1)
    t.equal(verdict.verdict, 'red')
    t.ok((verdict.counts[charge] ?? 0) > 0, JSON.stringify(verdict.counts))
    t.same(judgeProducers(innocent, 1).counts, {}, 'and the innocent one goes free')
  })
}

t.test('too little of anything, or a fault that never came: nothing can be said', async t => {
  const { verdict, inconclusive } = judgeProducers(history(), 2)
  t.equal(verdict, 'inconclusive')
  for (const words of ['1 committed, fewer than 2', 'too little of half', 'shop.stop never ran'])
    t.ok(inconclusive.includes(words), words)
})

t.test(
  'a seed plays the same work and the same faults again, and holds everything that is judged',
  async t => {
    const profile = profiles['producers']
    if (!profile) throw new Error('no such profile')
    t.same(planWork(3, profile), planWork(3, profile))
    t.same(planFaults(3, profile), planFaults(3, profile))
    t.notSame(planWork(3, profile), planWork(4, profile))
    for (const seed of [1, 2, 3]) {
      const works = planWork(seed, profile)
      t.ok(works.length > 2 * profile.fewest, `${works.length}`)
      t.same([...new Set(works.map(({ way }) => way))].sort(), [...ways].sort())
      t.same([...new Set(works.flatMap(({ dies }) => dies?.at ?? []))].sort(), [...steps].sort())
      for (const member of ['rollsBack', 'isWrong', 'isDependent', 'delayMs', 'openMs', 'lateMs'] as const)
        t.ok(
          works.some(one => one[member] !== undefined),
          member
        )
      const { processes, databases } = planFaults(seed, profile)
      t.same(
        [...new Set([...processes, ...databases].map(({ action }) => action))].sort(),
        [...actions].sort()
      )
    }
  }
)

t.test('every failpoint of a launch is one that there is, and their turn comes', async t => {
  for (const name of ['service-1', 'relay-mariadb-1']) {
    const points = pointsOf(1, name)
    const texts = Array.from({ length: 30 }, (_, launch) => points(launch)).filter(Boolean)
    for (const text of texts) t.type(parseFailpoints(text), Map, text)
    t.ok(new Set(texts.map(text => text.split('=')[0])).size >= 3)
  }
})

t.test('options that this profile cannot take are refused', async t => {
  t.match(readOptions(['--profile', 'producers'], {}), { profile: { isOfProducers: true } })
  t.throws(() => readOptions(['--profile', 'producers', '--together'], {}), /takes no --together/)
})

t.test('a fault is on record from its beginning, even if it is never mended', async t => {
  const broken = async () => {
    throw new Error('it does not start')
  }
  const stand = { ackboxDb: { stopAtOnce: async () => {}, start: broken } } as unknown as Stand
  const step = { atMs: 0, action: 'postgres.stop', holdMs: 0, which: 0 } as const
  const plan = { processes: [], databases: [step] }
  const { faults, doing, done } = startFaults(stand, plan, new AbortController().signal)
  const standing = { action: 'postgres.stop', target: 'postgres', to: Infinity }
  t.match(faults, [{ ...standing, mendedFrom: Infinity }])
  t.equal(doing(), 'postgres.stop')
  await t.rejects(done, /it does not start/)
  t.match(faults, [standing])
  t.ok((faults[0]?.mendedFrom ?? Infinity) < Infinity, 'its mending began')
})
