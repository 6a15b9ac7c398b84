import t from 'tap'
import {
  duration,
  waitingFor,
  waitingText,
  type OpenDelivery,
  type ServiceState
} from '../../src/domain/waiting-for.ts'

const now = new Date('2026-11-24T10:02:30.000Z')
const service: ServiceState = { now, workers: 1, dispatchers: 1, hasHandler: true, blockers: [] }
const failed = {
  attempt: 2,
  outcome: 'failed',
  reason: 'http_503',
  status: 503,
  startedAt: '2026-11-24T10:02:10.900Z',
  ms: 100
}
const waiting: OpenDelivery = {
  downstream: 'ads',
  phase: 'WAITING',
  attempt: 2,
  nextActionAt: '2026-11-24T10:03:12.000Z',
  attempts: [failed]
}
const { phase: _, ...over } = waiting
const delivered: OpenDelivery = {
  downstream: 'ads',
  phase: 'AWAITING_RECEIPT',
  attempt: 1,
  deliveredAt: '2026-11-24T10:02:00.000Z',
  nextActionAt: '2026-11-24T10:02:48.000Z'
}
const paused = { since: '2026-11-24T09:40:00.000Z', by: 'ops-1' }
const due = { ...waiting, nextActionAt: '2026-11-24T10:02:00.000Z' }
const blocker = { taskNo: 'order-41', status: 'FAILED', since: '2026-11-24T09:58:00.000Z' } as const

type Row = [delivery: OpenDelivery, service: Partial<ServiceState>, code: string, en: RegExp, zh: RegExp]
const rows: Row[] = [
  [
    waiting,
    {},
    'NEXT_ATTEMPT',
    /^Attempt 3 starts in 42 s: attempt 2 got 503 at 10:02:11 UTC\.$/,
    /第 3 次尝试将在 42 秒后开始：第 2 次于 10:02:11 UTC 得到 503。/
  ],
  [
    {
      ...waiting,
      attempts: [{ ...failed, outcome: 'delivered', status: 200, reason: 'no_receipt: none within 60 s' }]
    },
    {},
    'NEXT_ATTEMPT',
    /: attempt 2 got 200 at 10:02:11 UTC, then no_receipt: none within 60 s\.$/,
    /：第 2 次于 10:02:11 UTC 得到 200，之后 no_receipt: none within 60 s。/
  ],
  [
    { ...waiting, attempt: 0, attempts: [] },
    {},
    'NEXT_ATTEMPT',
    /^Attempt 1 starts in 42 s\.$/,
    /第 1 次尝试将在 42 秒后开始。/
  ],
  [
    due,
    {},
    'ROOM',
    /^Attempt 3 has been due since 10:02:00 UTC and starts once there is room: attempt 2 got 503/,
    /一有空位就开始/
  ],
  [
    { ...waiting, phase: 'IN_FLIGHT' },
    {},
    'ANSWER',
    /^Attempt 2 is claimed by a process: no answer yet; without one it counts as lost in 42 s\.$/,
    /尚无响应；若无响应，将在 42 秒后按丢失处理。/
  ],
  // The worker that had it is dead.
  [
    { ...waiting, phase: 'IN_FLIGHT' },
    { workers: 0 },
    'WORKER',
    /^No worker is running\.$/,
    /没有运行中的 worker/
  ],
  [
    delivered,
    {},
    'RECEIPT',
    /^Delivered at 10:02:00 UTC; its receipt is due in 18 s\.$/,
    /；应在 18 秒内收到回执。/
  ],
  [
    { ...waiting, phase: 'BLOCKED' },
    { blockers: [{ ...blocker, orderingKey: 'order-7' }] },
    'TASK',
    /^Behind order-41 of the key order-7, which is FAILED since 09:58:00 UTC\.$/,
    /排在 order-41（顺序键 order-7）之后/
  ],
  [
    { ...waiting, phase: 'BLOCKED' },
    { blockers: [blocker, blocker, blocker] },
    'TASK',
    /^It comes after order-41, which is FAILED since 09:58:00 UTC\. And for 2 more\.$/,
    /另有 2 个前置任务/
  ],
  [{ ...waiting, phase: 'BLOCKED' }, {}, 'DISPATCHER', /dispatcher releases it/, /dispatcher/],
  [
    waiting,
    { paused },
    'PAUSED',
    /^ads has been paused since 09:40:00 UTC, by ops-1\.$/,
    /ads 自 09:40:00 UTC 起已暂停，操作人 ops-1。/
  ],
  [waiting, { hasHandler: false }, 'HANDLER', /No handler here names ads/, /没有发往 ads 的处理器/],
  [waiting, { workers: 0 }, 'WORKER', /^No worker is running\.$/, /没有运行中的 worker/],
  ...[
    due,
    waiting,
    { ...waiting, phase: 'BLOCKED' as const },
    { ...delivered, nextActionAt: due.nextActionAt }
  ].map((one): Row => [
    one,
    { dispatchers: 0 },
    'DISPATCHER',
    /^No dispatcher is running\.$/,
    /^没有运行中的 dispatcher。$/
  ]),
  [delivered, { dispatchers: 0 }, 'RECEIPT', /due in 18 s/, /应在 18 秒内收到回执/],
  // A pause comes first: no other change would help.
  [waiting, { paused, workers: 0, hasHandler: false }, 'PAUSED', /paused/, /暂停/],
  // A worker is sending it: the pause does not stop that attempt.
  [{ ...waiting, phase: 'IN_FLIGHT' }, { paused }, 'ANSWER', /claimed by a process/, /已有进程认领/]
]

t.test('each state that a delivery can wait in is one sentence, in both languages', async t => {
  for (const [delivery, more, code, en, zh] of rows) {
    const found = waitingFor(delivery, { ...service, ...more })
    if (!found) throw new Error(code)
    t.equal(found.code, code)
    t.match(waitingText(found, 'en', { now }), en)
    t.match(waitingText(found, 'zh', { now }), zh)
  }
})

t.test('without a clock the sentence names the time; what is over waits for nothing', async t => {
  const found = waitingFor(waiting, service)
  if (!found) throw new Error('it waits')
  t.match(waitingText(found, 'en'), /^Attempt 3 starts at 10:03:12 UTC: /)
  t.match(waitingText(found, 'zh'), /于 10:03:12 UTC 开始/)
  t.equal(waitingFor(over, service), null)
})

t.test('a duration says two parts at most, and is never below zero', async t => {
  const said = [-5_000, 42_000, 60_000, 200_000, 7_500_000, 273_600_000].map(ms => duration(ms, 'en'))
  t.same(said, ['0 s', '42 s', '1 min', '3 min 20 s', '2 h 5 min', '3 d 4 h'])
  t.equal(duration(200_000, 'zh'), '3 分钟 20 秒')
})
