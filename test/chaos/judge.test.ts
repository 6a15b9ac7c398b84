import t from 'tap'
import type { AlarmMessage, Call, History } from '../../chaos/history.ts'
import { judge } from '../../chaos/judge.ts'
import { charges } from '../../chaos/judge/finding.ts'
import {
  arrival,
  call,
  exit,
  fault,
  history,
  iso,
  planned,
  receipt,
  receipted,
  rows,
  start,
  takenAlong,
  task
} from './told.ts'
import { only } from '../support/only.ts'

const late = arrival({ at: start + 59_000, attempt: 2, answeredAt: start + 59_010 })
const failed = { status: 'FAILED', reason: 'SEND_EXHAUSTED', attempt: 1, attempts: rows(1) } as const
const alarm = { taskNo: 'a', downstream: 'plain', attempt: 1, kind: 'FAILED', createdAt: iso(80) }
const message: AlarmMessage = {
  at: start + 85,
  status: 204,
  kind: 'FAILED',
  downstream: 'plain',
  count: 1,
  deliveries: [{ taskNo: 'a', attempt: 1 }]
}
const endedAtStart = exit({ launchedAt: start - 2_000, starting: true })
const noRedis =
  '{"msg":"doctor.fix"}\nackbox: Redis at 127.0.0.1:6379 cannot be reached: check REDIS_URL, and that the server is up (connect ECONNREFUSED 127.0.0.1:6379)\n'
/** Answered 500 once, and FAILED: allowed if its limit is 1. */
const once = (retryTimes: number, more: Partial<History> = {}): History =>
  history({
    planned: [{ ...planned, retryTimes }],
    arrivals: [arrival({ answer: '500' })],
    tasks: [task(failed)],
    alarms: [{ ...alarm, sentAt: iso(90) }],
    messages: [message],
    ...more
  })
/** The same task, redelivered. The sink answers well from then on. */
const redelivered = (more: Partial<Call> = {}): Partial<History> => ({
  calls: [call('first', 201), { ...call('redeliver', 200, 1_000), ...more }],
  arrivals: [arrival({ answer: '500' }), arrival({ at: start + 1_500, attempt: 2 })],
  tasks: [task({ attempt: 2, attempts: rows(2), handledAt: iso(1_510) })]
})
const tried = (...statuses: number[]): Partial<Call> => ({
  status: statuses.at(-1) ?? 0,
  tries: statuses.map((status, n) => ({ at: start + 1_000 + n * 100, ms: 10, status }))
})
const other = (n: number) => arrival({ taskNo: 'b', at: start + n })

/** Two tasks of one key. The first was HANDLED at 70. */
function inOrder(about: { secondAt: number; sequence?: number; secondPostedAt?: number }): History {
  const { secondAt, sequence = 2, secondPostedAt = 5 } = about
  const key = { orderingKey: 'k' }
  const posted = { ...call('first', 201, secondPostedAt), taskNo: 'b' }
  return history({
    planned: [
      { ...planned, ...key },
      { ...planned, ...key, taskNo: 'b' }
    ],
    // If the second was accepted first, it should have the first position.
    calls: [call('first', 201), posted],
    arrivals: [
      arrival({ sequence: 1 }),
      arrival({ taskNo: 'b', at: start + secondAt, answeredAt: start + secondAt + 5, sequence })
    ],
    tasks: [task({ position: 1 }), task({ position: 2, handledAt: iso(secondAt + 10) }, { taskNo: 'b' })]
  })
}

/** Each guilty history, with the one charge that it must bring, and a similar innocent history. */
const stories: [charge: keyof typeof charges, guilty: History, innocent: History][] = [
  [
    'lost',
    history({ arrivals: [] }),
    history({
      arrivals: [],
      calls: [call('first', 201), call('remove', 200)],
      tasks: [task({ status: 'DELETED' })]
    })
  ],
  ['unexpected', history({ arrivals: [arrival(), other(1)] }), history()],
  [
    'unexpected',
    history({
      planned: [planned, { ...planned, taskNo: 'b', isWrong: true }],
      arrivals: [arrival(), other(1)]
    }),
    history({ planned: [planned, { ...planned, taskNo: 'b', isWrong: true }] })
  ],
  ['vanished', history({ tasks: [task({}, { missing: true, status: '404' })] }), history()],
  [
    'vanished',
    history({ calls: [call('first', 201), call('look', 404)] }),
    history({ calls: [call('first', 201), call('look', 200)] })
  ],
  ['stuck', history({ tasks: [task({ status: 'SENDING' })] }), history()],
  ['failedEarly', once(2), once(1)],
  // Without retryTimes the limit is that of the handler, 30.
  ['failedEarly', once(1, { planned: [planned] }), once(1)],
  // The redelivery was answered 2xx, and nothing was sent.
  [
    'failedEarly',
    once(1, { calls: [call('first', 201), call('redeliver', 200, 1_000)] }),
    once(1, redelivered())
  ],
  // Whether that of a task with two downstreams was FAILED at the redelivery is not known.
  [
    'failedEarly',
    once(1, { calls: [call('first', 201), call('redeliver', 200, 1_000)] }),
    once(1, {
      planned: [{ ...planned, messageCode: 'chaos.pair', retryTimes: 1 }],
      calls: [call('first', 201), call('redeliver', 200, 1_000)],
      arrivals: [arrival({ downstream: 'left', answer: '500' })],
      tasks: [
        {
          ...task(),
          deliveries: [
            ...task({ ...failed, downstream: 'left' }).deliveries,
            ...task({ downstream: 'right' }).deliveries
          ]
        }
      ]
    })
  ],
  ['corrupted', history({ arrivals: [arrival({ hash: 'another' })] }), history()],
  ['corrupted', history({ arrivals: [arrival({ signed: false })] }), history()],
  [
    'early',
    history({ tasks: [task({}, { deliverStartTime: iso(51) })] }),
    history({ tasks: [task({}, { deliverStartTime: iso(50) })] })
  ],
  [
    'early',
    history({ planned: [{ ...planned, delayMs: 51 }] }),
    history({ planned: [{ ...planned, delayMs: 50 }] })
  ],
  // The service ignores the start time: the API does not show it.
  [
    'early',
    history({ calls: [{ ...call('first', 201), startAt: start + 51 }] }),
    history({ calls: [{ ...call('first', 201), startAt: start + 50 }] })
  ],
  [
    'unaccounted',
    history({ tasks: [task({ attempts: [] })] }),
    // Its worker was killed before it wrote the attempt, and another worker sent it again.
    takenAlong()
  ],
  ['unaccounted', history({ tasks: [task({ attempt: 0, attempts: rows(1) })] }), history()],
  [
    'nonMonotone',
    history({
      arrivals: [arrival({ attempt: 2, answer: '500' }), arrival({ at: start + 90 })],
      tasks: [task({ attempt: 2, attempts: rows(2) })]
    }),
    history({
      arrivals: [
        arrival({ attempt: 2, answer: '500', sender: 'worker-2#1' }),
        arrival({ at: start + 90, builtAt: start + 20 })
      ],
      tasks: [task({ attempt: 2, attempts: rows(2) })],
      faults: [fault('stop.worker', -5_000, 80, 'worker-1#1')]
    })
  ],
  ['receiptLost', receipted({ tasks: [task({ downstream: 'receipted', status: 'DELETED' })] }), receipted()],
  ['falseHandled', receipted({ receipts: [] }), receipted()],
  [
    'falseHandled',
    receipted({ receipts: [receipt({ token: 'bad' }, { status: 401, applied: false })] }),
    receipted({ receipts: [], arrivals: [arrival({ downstream: 'receipted', owed: true, handled: true })] })
  ],
  [
    'falseHandled',
    history({ arrivals: [arrival({ answer: '500' })] }),
    history({ arrivals: [arrival({ answer: 'late' })] })
  ],
  [
    'afterTerminal',
    history({
      arrivals: [arrival({ answer: '500' }), late],
      tasks: [task({ attempt: 2, attempts: rows(2) })]
    }),
    history({
      arrivals: [
        arrival({ answer: '500' }),
        arrival({ at: start + 2_000, attempt: 2, answeredAt: start + 2_010 })
      ],
      tasks: [task({ attempt: 2, attempts: rows(2) })]
    })
  ],
  [
    'afterTerminal',
    history({ calls: [call('first', 201), call('remove', 200)] }),
    history({ calls: [call('first', 201), call('remove', 409)] })
  ],
  [
    'overLimit',
    history({
      planned: [{ ...planned, retryTimes: 1 }],
      arrivals: [1, 2, 3, 4].map(attempt => arrival({ attempt, answer: attempt < 4 ? '500' : '200' })),
      tasks: [task({ attempt: 4, attempts: rows(4) })]
    }),
    history({
      planned: [{ ...planned, retryTimes: 2 }],
      arrivals: [1, 2, 3, 4].map(attempt => arrival({ attempt, answer: attempt < 4 ? '500' : '200' })),
      tasks: [task({ attempt: 4, attempts: rows(4) })]
    })
  ],
  [
    'conflict',
    history({ calls: [call('first', 201), call('conflict', 200)] }),
    history({ calls: [call('first', 201), call('conflict', 409)] })
  ],
  [
    'refused',
    history({ calls: [call('first', 201), call('again', 409)] }),
    history({ calls: [call('first', 201), call('again', 200)] })
  ],
  [
    'refused',
    history({ calls: [call('first', 201), { ...call('wrong', 201), taskNo: 'b' }] }),
    history({ calls: [call('first', 201), { ...call('wrong', 422), taskNo: 'b' }] })
  ],
  ['refused', once(1, redelivered(tried(404))), once(1, redelivered())],
  ['refused', once(1, redelivered(tried(409))), once(1, redelivered(tried(503, 409)))],
  [
    'refused',
    once(1, redelivered(tried(503, 404))),
    once(1, { ...redelivered(tried(409)), receipts: [receipt({ downstream: 'plain' })] })
  ],
  ['unanswered', history({ calls: [call('first', 201), call('again', 503)] }), history()],
  ['silentFailure', once(1, { alarms: [], messages: [] }), once(1)],
  ['silentFailure', once(1, { alarms: [alarm] }), once(1)],
  // Marked as sent, and its channel heard nothing, refused it, heard of others, or heard of it before.
  ['silentFailure', once(1, { messages: [] }), once(1)],
  [
    'silentFailure',
    once(1, { messages: [{ ...message, status: 503 }] }),
    once(1, { messages: [{ ...message, status: 503 }, message] })
  ],
  [
    'silentFailure',
    once(1, { messages: [{ ...message, deliveries: [{ taskNo: 'b', attempt: 1 }] }] }),
    // It lists some of those that it counts.
    once(1, { messages: [{ ...message, count: 2, deliveries: [{ taskNo: 'b', attempt: 1 }] }] })
  ],
  [
    'silentFailure',
    once(1, { messages: [{ ...message, count: 2, at: start + 79 }] }),
    once(1, { messages: [{ ...message, count: 2, at: start + 81 }] })
  ],
  [
    'silentFailure',
    once(1, {
      messages: [
        { ...message, downstream: 'receipted' },
        { ...message, kind: 'TLS' }
      ]
    }),
    once(1)
  ],
  // The alarm of an earlier round says nothing about this one.
  ['silentFailure', once(1, { tasks: [task({ ...failed, attempt: 2, attempts: rows(2) })] }), once(1)],
  [
    'overdue',
    history({
      arrivals: [arrival({ at: start + 20_000, answeredAt: start + 20_010 })],
      tasks: [task({ handledAt: iso(20_020) })]
    }),
    // PostgreSQL was away. The promised 6.5 s begin when it is back.
    history({
      arrivals: [arrival({ at: start + 20_000, answeredAt: start + 20_010 })],
      tasks: [task({ handledAt: iso(20_020) })],
      faults: [fault('postgres.stop', 1_000, 14_000)]
    })
  ],
  ['leaked', history({ leaks: [{ place: 'api-1.log', secret: 'SECRET' }] }), history()],
  [
    'crashed',
    history({ exits: [exit()] }),
    history({
      exits: [exit({ code: null, signal: 'SIGKILL', by: 'kill' })]
    })
  ],
  // Both started while Redis was away. The first ended for another reason, the second because of Redis.
  [
    'crashed',
    history({
      faults: [fault('redis.kill', -3_000, 500)],
      exits: [{ ...endedAtStart, logTail: 'ackbox: this is a bug\nTypeError' }]
    }),
    history({
      faults: [fault('redis.kill', -3_000, 500)],
      exits: [{ ...endedAtStart, logTail: noRedis }]
    })
  ],
  [
    'crashed',
    history({ exits: [{ ...endedAtStart, logTail: noRedis }] }),
    history({ faults: [fault('postgres.stop', -3_000, 500)], exits: [endedAtStart] })
  ],
  [
    'crashed',
    history({
      exits: [exit({ by: 'term' })]
    }),
    history({
      exits: [exit({ code: 0, by: 'term' })]
    })
  ],
  [
    'declaredDead',
    history({ calledDead: [{ process: 'worker-1', at: start + 9_000 }] }),
    history({
      calledDead: [{ process: 'worker-1', at: start + 9_000 }],
      faults: [fault('thaw.worker', -2_000, 8_000, 'worker-1#1')]
    })
  ],
  [
    'unexplained',
    history({
      arrivals: [arrival(), arrival({ at: start + 500, attempt: 2 })],
      tasks: [task({ attempt: 2, attempts: rows(2), handledAt: iso(510) })]
    }),
    history({
      arrivals: [arrival({ answer: '429' }), arrival({ at: start + 500, attempt: 2 })],
      tasks: [task({ attempt: 2, attempts: rows(2), handledAt: iso(510) })]
    })
  ],
  [
    'forged',
    receipted({ receipts: [receipt(), receipt({ token: 'bad' }, { status: 200, applied: false })] }),
    receipted({ receipts: [receipt(), receipt({ token: 'bad' }, { status: 401 })] })
  ],
  [
    'rollingPost',
    history({
      calls: [
        {
          ...call('first', 201),
          tries: [
            { at: start, ms: 5, status: 503 },
            { at: start + 100, ms: 5, status: 201 }
          ]
        }
      ],
      faults: [fault('rolling', -1_000, 5_000)]
    }),
    // The 503 came before the restart began.
    history({
      calls: [
        {
          ...call('first', 201),
          tries: [
            { at: start, ms: 5, status: 503 },
            { at: start + 100, ms: 5, status: 201 }
          ]
        }
      ],
      faults: [fault('redis.kill', -3_000, 50), fault('rolling', 60, 5_000)]
    })
  ],
  ['orphan', history({ inside: [{ invariant: 'I10', taskNo: 'a', detail: '' }] }), history()],
  ['unexplainedMove', history({ inside: [{ invariant: 'move', taskNo: 'a', detail: '' }] }), history()],
  ['overtaken', inOrder({ secondAt: 40 }), inOrder({ secondAt: 80 })],
  ['overtaken', inOrder({ secondAt: 80, sequence: 7 }), inOrder({ secondAt: 80 })],
  ['misplaced', inOrder({ secondAt: 80, secondPostedAt: -50 }), inOrder({ secondAt: 80, secondPostedAt: 0 })],
  // The service ignores the orderingKey.
  [
    'misplaced',
    {
      ...inOrder({ secondAt: 40 }),
      tasks: [task(), task({ handledAt: iso(50) }, { taskNo: 'b' })]
    },
    inOrder({ secondAt: 80 })
  ],
  ['attemptFell', history({ inside: [{ invariant: 'I32', taskNo: 'a', detail: '' }] }), history()]
]

for (const [charge, guilty, innocent] of stories) {
  t.test(`${charge}: ${charges[charge]}`, async t => {
    const verdict = judge(guilty, 1)
    t.equal(verdict.verdict, 'red')
    t.ok((verdict.counts[charge] ?? 0) > 0, JSON.stringify(verdict.counts))
    t.notOk(charge in judge(innocent, 1).counts, 'and the innocent one goes free')
  })
}

t.test('every charge has its guilty one', async t => {
  t.same([...new Set(stories.map(([charge]) => charge))].sort(), Object.keys(charges).sort())
})

t.test('one task that went well is green', async t => {
  t.match(judge(history(), 1), {
    verdict: 'green',
    accepted: 1,
    findings: { length: 0 },
    inconclusive: { length: 0 }
  })
  t.match(judge(receipted(), 1), { verdict: 'green' })
})

t.test('too few tasks, an action that never ran, or Ctrl-C: nothing can be said', async t => {
  t.match(judge(history(), 2), { verdict: 'inconclusive', inconclusive: only('1 tasks, fewer than 2') })
  t.match(judge(history({ wanted: ['redis.kill'] }), 1), { inconclusive: only('redis.kill never ran') })
  t.match(judge(history({ interrupted: true }), 1), { verdict: 'inconclusive' })
  t.match(judge(history({ insideSamples: 9 }), 1), {
    verdict: 'inconclusive',
    inconclusive: only('9 samples inside the database, fewer than 10')
  })
  const rolling = (from: number, to: number) => history({ faults: [fault('rolling', from, to)] })
  t.match(judge(rolling(70_000, 90_000), 1), {
    verdict: 'inconclusive',
    inconclusive: only('no POST met the rolling restart')
  })
  t.match(judge(rolling(-1_000, 5_000), 1), { verdict: 'green' })
  t.equal(judge(history({ arrivals: [], interrupted: true }), 1).verdict, 'red', 'but what was seen was seen')
})

t.test('duplicates are counted by what explains them', async t => {
  const arrivals = ['500', 'hang', '200'].map((answer, at) =>
    arrival({ attempt: at + 1, at: start + 50 + at * 100, answer })
  )
  t.match(judge(history({ arrivals, tasks: [task({ attempt: 3, attempts: rows(3) })] }), 1), {
    verdict: 'green',
    duplicates: { extra: 2, causes: { 'answer 500': 1, 'answer hang': 1 } }
  })
})
