import t from 'tap'
import { countText, sumOf, sumText } from '../../src/ui/counts.ts'
import type { Downstream, Group, Node, Stats } from '../../src/ui/shapes.ts'
import { verdict, type VerdictFacts } from '../../src/ui/verdict.ts'
import { only } from '../support/only.ts'

const now = new Date('2026-11-24T10:00:00.000Z')
const at = (minutes: number): string => new Date(now.getTime() - minutes * 60_000).toISOString()

const node: Node = {
  id: 'n-1',
  roles: ['api', 'worker', 'dispatcher'],
  version: '1.0.0',
  live: true,
  startedAt: at(60),
  seenAt: at(0),
  yielded: []
}
const ads: Downstream = {
  name: 'ads',
  waiting: 0,
  inFlight: 0,
  awaitingReceipt: 0,
  blocked: 0,
  failed: 0,
  mayChange: true
}
const group: Group = {
  fingerprint: '0123456789abcdef',
  downstream: 'ads',
  reason: 'REFUSED',
  failed: 3,
  failures: 3,
  again: 0,
  firstAt: at(9_000),
  lastAt: at(9_000),
  histogram: [],
  example: { taskNo: 'order-1', messageCode: 'order.paid' },
  mayArchive: true
}
const point = {
  accepted: 0,
  firstTries: 0,
  firstDelivered: 0,
  handled: 0,
  direct: 0,
  failed: 0,
  failedLater: 0,
  exhausted: 0
}
const lately = (attempts: number, failedAttempts: number, minutes = 3): Stats => ({
  from: at(60),
  to: at(0),
  step: 300,
  series: [
    {
      downstream: 'ads',
      points: [
        {
          at: new Date(Math.floor((now.getTime() - minutes * 60_000) / 300_000) * 300_000).toISOString(),
          ...point,
          attempts,
          failedAttempts
        }
      ],
      total: { ...point, attempts, failedAttempts }
    }
  ]
})
const well: VerdictFacts = {
  downstreams: [ads],
  lately: lately(10, 1),
  failures: [],
  alarms: { alarms: [] },
  held: { keys: [] },
  nodes: [node]
}
const alarm = {
  taskNo: 'order-1',
  messageCode: 'order.paid',
  downstream: 'ads',
  attempt: 1,
  createdAt: at(1)
}

t.test('nothing is wrong only where nothing is', async t => {
  t.same(verdict(well, now), [])
  const rows: [more: Partial<VerdictFacts>, codes: string[]][] = [
    [{ nodes: [] }, ['NO_WORKER', 'NO_DISPATCHER']],
    [{ nodes: [{ ...node, live: false }] }, ['NO_WORKER', 'NO_DISPATCHER']],
    [{ nodes: [{ ...node, roles: ['api', 'worker'] }] }, ['NO_DISPATCHER']],
    [{ downstreams: [{ ...ads, failed: 372 }] }, ['FAILED']],
    [{ downstreams: [{ ...ads, failed: '10,000+' }] }, ['FAILED']],
    [{ downstreams: [{ ...ads, failed: 3 }], failures: [group] }, ['FAILED', 'GROUP']],
    [{ failures: [{ ...group, failed: 0 }] }, []],
    [{ held: { keys: [{}, {}] } }, ['HELD']],
    [{ downstreams: [{ ...ads, oldestDueAt: at(50) }] }, ['OVERDUE']],
    [{ downstreams: [{ ...ads, oldestDueAt: at(1) }] }, []],
    [{ downstreams: [{ ...ads, oldestDueAt: at(50), pausedAt: at(60) }] }, ['PAUSED']],
    [{ lately: lately(10, 4) }, ['FAILING']],
    [{ lately: lately(10, 3) }, []],
    [{ lately: lately(10, 10, 30) }, []],
    [
      {
        alarms: {
          alarms: [
            { ...alarm, kind: 'KEY_HELD' },
            { ...alarm, kind: 'TLS' }
          ]
        }
      },
      ['ALARM', 'ALARM']
    ]
  ]
  for (const [more, codes] of rows)
    t.same(
      verdict({ ...well, ...more }, now).map(one => one.code),
      codes,
      JSON.stringify(more)
    )
})

t.test('each says how many', async t => {
  const wrong = verdict(
    {
      ...well,
      downstreams: [
        { ...ads, failed: 301 },
        { ...ads, name: 'search', failed: '10,000+' }
      ],
      held: { keys: Array.from({ length: 200 }, () => ({})), nextCursor: 'x' },
      alarms: { alarms: [1, 2].map(attempt => ({ ...alarm, attempt, kind: 'NO_HANDLER' })) }
    },
    now
  )
  t.match(
    wrong,
    only(
      { code: 'FAILED', count: '10,301+' },
      { code: 'HELD', count: '200+' },
      { code: 'ALARM', kind: 'NO_HANDLER', downstream: 'ads', count: '2' }
    )
  )
})

t.test('counts that are texts are added up as numbers', async t => {
  t.same(sumOf([1, 2]), { n: 3, isMore: false })
  t.equal(sumText(sumOf(['10,000+', 301])), '10,301+')
  t.equal(countText('37+'), '37+')
  t.equal(countText(310_000), '310,000')
  t.same(sumOf([]), { n: 0, isMore: false })
})
