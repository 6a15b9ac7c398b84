// The causes that the judge accepts: a kill, a stop, a neighbour, a machine that stood still. Nearness in time is not a cause.
import t from 'tap'
import type { Arrival, Fault, History, SeenDelivery } from '../../chaos/history.ts'
import { judge } from '../../chaos/judge.ts'
import {
  arrival,
  call,
  delivered,
  exit,
  fault,
  history,
  iso,
  planned,
  rows,
  start,
  takenAlong,
  task
} from './told.ts'

t.test(
  'the other process of a role takes over at once: its loss is no excuse for the time it is gone',
  async t => {
    const story = (action: string) =>
      history({
        arrivals: [arrival({ at: start + 20_000, answeredAt: start + 20_010 })],
        tasks: [task({ handledAt: iso(20_020) })],
        faults: [fault(action, 1_000, 14_000)]
      })
    for (const action of ['stop.worker', 'thaw.worker'])
      t.match(judge(story(action), 1).counts, { overdue: 1 })
    for (const action of ['redis.blackhole', 'postgres.failover', 'redis.failover'])
      t.notOk('overdue' in judge(story(action), 1).counts)
  }
)

t.test('of the promised time only that counts in which the machine worked', async t => {
  const story = (slowMs: number) =>
    history({
      arrivals: [arrival({ at: start + 10_000, answeredAt: start + 10_010 })],
      tasks: [task({ handledAt: iso(10_020) })],
      cpuSamples: Array.from({ length: 80 }, (_, n) => ({
        at: start + 250 * (n + 1),
        ms: n < 20 ? slowMs : 10,
        workedMs: 10
      }))
    })
  t.match(judge(story(10), 1).counts, { overdue: 1 }, 'it worked all the time')
  t.notOk('overdue' in judge(story(100), 1).counts, 'for 5 s its processors were taken')
  t.match(judge(story(20), 1).counts, { overdue: 1 }, 'for 5 s half of it was: that is no excuse for 3.5 s')
})

t.test(
  'a machine without a processor for its sink loses nothing: what was tried and never read is FAILED',
  async t => {
    const story = (slowMs: number, more: Partial<SeenDelivery> = {}) =>
      judge(
        history({
          arrivals: [],
          tasks: [task({ status: 'FAILED', attempts: rows(1), ...more })],
          cpuSamples: Array.from({ length: 40 }, (_, n) => ({
            at: start + 250 * (n + 1),
            ms: slowMs,
            workedMs: 10
          }))
        }),
        1
      ).counts.lost ?? 0
    t.equal(story(10), 1, 'it worked')
    t.equal(story(40), 0, 'a quarter of the time')
    t.equal(story(40, { attempts: [] }), 1, 'nobody tried')
    t.equal(story(40, { status: 'HANDLED' }), 1, 'it is not FAILED')
  }
)

t.test('an attempt that a busy sink never read is one all the same', async t => {
  const second = arrival({ attempt: 2, at: start + 9_000, answeredAt: start + 9_010 })
  const overdue = (at: number): number =>
    judge(
      history({
        arrivals: [second],
        tasks: [
          task({
            attempt: 2,
            handledAt: iso(9_020),
            attempts: [{ attempt: 1, outcome: 'failed', startedAt: iso(at) }, ...delivered(2).slice(1)]
          })
        ]
      }),
      1
    ).counts.overdue ?? 0
  t.equal(overdue(1_000), 0, 'it was due again in time')
  t.equal(overdue(8_000), 1, 'it was tried too late')
})

t.test('a POST that fails in a rolling restart is charged where the machine worked', async t => {
  const story = (slowMs: number) =>
    history({
      calls: [
        { ...call('first', 201), tries: [{ at: start + 9_000, ms: 4_000, status: 0 }] },
        call('first', 201, 14_000)
      ],
      faults: [fault('rolling', 1_000, 20_000)],
      cpuSamples: Array.from({ length: 80 }, (_, n) => ({
        at: start + 250 * (n + 1),
        ms: n < 60 ? slowMs : 10,
        workedMs: 10
      }))
    })
  t.equal(judge(story(10), 1).counts.rollingPost, 1)
  t.equal(judge(story(15), 1).counts.rollingPost, 1, 'two thirds of it')
  t.notOk('rollingPost' in judge(story(40), 1).counts, 'a quarter of it')
})

t.test('what a process had when it was declared dead may arrive twice, if it could not beat', async t => {
  const story = (more: Partial<History>, process = 'worker-1', at = 600) =>
    judge(
      history({
        calledDead: [{ process, at: start + at }],
        arrivals: [arrival(), arrival({ at: start + 500, attempt: 2 })],
        tasks: [task({ attempt: 2, attempts: rows(2), handledAt: iso(510) })],
        ...more
      }),
      1
    )
  const excused = { verdict: 'green', duplicates: { causes: { 'called dead': 1 } } }
  /** Until 3 s before it learns it, the machine did not work for 3 s. */
  const starved = (slowMs: number): Partial<History> => ({
    cpuSamples: Array.from({ length: 60 }, (_, n) => {
      const at = 600 + 250 * (n - 50)
      return { at: start + at, ms: at > -5_400 && at <= -2_400 ? slowMs : 10, workedMs: 10 }
    })
  })
  const stop = (process: string) => ({ faults: [fault('stop.worker', -6_000, -1_000, process)] })
  t.match(story(starved(1_000)), excused)
  t.match(story({ faults: [fault('postgres.blackhole', -6_000, -3_000)] }), excused)
  t.match(story(stop('worker-1#1')), excused)
  t.same(story({}).counts, { declaredDead: 1, unexplained: 1 }, 'it worked all the time')
  t.match(story(starved(15)).counts, { declaredDead: 1 }, 'it had two thirds of a processor')
  t.match(story(stop('worker-2#1')).counts, { declaredDead: 1 }, 'another one was stopped')
  t.match(story({ faults: [fault('redis.kill', -6_000, -1_000)] }).counts, { declaredDead: 1 })
  t.match(
    story({ faults: [fault('postgres.stop', -30_000, -9_000)] }).counts,
    { declaredDead: 1 },
    'long ago'
  )
  t.same(story(stop('worker-2#1'), 'worker-2').counts, { unexplained: 1 }, 'another one was declared dead')
  t.same(story(stop('worker-1#1'), 'worker-1', -1).counts, { unexplained: 1 }, 'before it had the delivery')
})

t.test('a request without a row is excused by the kill of its own sender, whenever it is read', async t => {
  const counts = (told: History) => judge(told, 1).counts
  const charged = (...told: Parameters<typeof takenAlong>): number =>
    counts(takenAlong(...told)).unaccounted ?? 0
  t.same(counts(takenAlong()), {})
  t.equal(charged({ sender: 'worker-2#1' }), 1, 'its sender lives, and another worker was killed')
  t.equal(charged({ sender: 'worker-1#2' }), 1, 'the next launch of the same worker lives')
  const minutes = { at: start + 300_000, cameAfter: start + 50, answeredAt: start + 300_010 }
  t.same(
    counts(takenAlong({ ...minutes, builtAt: start + 50 })),
    {},
    'the sink reads it minutes after the kill, on a connection that was accepted then'
  )
  t.equal(charged({ ...minutes, builtAt: start + 50, sender: 'worker-2#1' }), 1)
  t.equal(
    charged({}, {}, { faults: [fault('stop.worker', 100, 6_000, 'worker-1#1')] }),
    1,
    'it was stopped, and goes on: it writes its row'
  )
  const ended = { faults: [], exits: [exit({ name: 'worker-1', code: 0, by: 'term' })] }
  t.equal(charged({}, {}, ended), 1, 'it was ended by SIGTERM: it has time to write')
})

t.test('the kill of its sender excuses no row of an attempt whose outcome was recorded', async t => {
  const minutesLater = fault('kill.worker', 300_000, 301_000, 'worker-1#1')
  const story = (more: Partial<History>) =>
    judge(history({ tasks: [task({ attempts: [] })], faults: [minutesLater], ...more }), 1).counts
  t.same(story({}), { unaccounted: 1 }, 'HANDLED by this very attempt')
  const retried = [
    arrival({ answer: '500' }),
    arrival({ attempt: 2, at: start + 400, answeredAt: start + 410, sender: 'worker-2#1' })
  ]
  const tasks = [task({ attempt: 2, attempts: rows(2).slice(1), handledAt: iso(420) })]
  t.same(
    story({ arrivals: retried, tasks }),
    { unaccounted: 1 },
    'a retry followed before the lease was over'
  )
  const calls = [call('first', 201), call('redeliver', 200)]
  t.same(story({ arrivals: retried, tasks, calls }), {}, 'a redelivery may be why it followed')
})

t.test(
  'attempts in the wrong order are charged when it is certain, unless their sender stood still',
  async t => {
    const charged = (late: Partial<Arrival>, faults: Fault[] = []): number => {
      const arrivals = [
        arrival({ attempt: 2, answer: '500', sender: 'worker-2#1' }),
        arrival({ at: start + 30_000, builtAt: start + 20, answer: '500', ...late })
      ]
      const told = history({ arrivals, tasks: [task({ attempt: 2, attempts: rows(2) })], faults })
      return judge(told, 1).counts.nonMonotone ?? 0
    }
    const stop = (process: string) => fault('stop.worker', 25, 29_000, process)
    t.equal(charged({}), 1)
    t.equal(charged({}, [stop('worker-1#1')]), 0, 'stopped as it was about to write, however long ago')
    t.equal(charged({}, [stop('worker-2#1')]), 1, 'another was stopped')
    t.equal(charged({ builtAt: start + 29_500 }, [stop('worker-1#1')]), 1, 'built after it went on')
    t.equal(charged({ cameAfter: start + 40 }), 0, 'both waited side by side while the sink stood still')
    t.equal(charged({ cameAfter: start + 40, attempt: 2 }), 1, 'the same attempt twice is none of order')
    const again = { attempt: 2, builtAt: start + 30_000, cameAfter: start + 29_980 }
    t.equal(charged(again), 1, 'the same attempt twice, read at once')
  }
)

t.test('what left in time is not charged with the time at which a busy sink reads it', async t => {
  const counts = (late: Partial<Arrival>, faults: Fault[] = []) => {
    const arrivals = [arrival({ answer: '500' }), arrival({ at: start + 9_000, attempt: 2, ...late })]
    return judge(history({ arrivals, tasks: [task({ attempt: 2, attempts: rows(2) })], faults }), 1).counts
  }
  const inTime = { builtAt: start + 65, cameAfter: start + 65 }
  t.notOk('afterTerminal' in counts(inTime))
  t.equal(counts({ ...inTime, cameAfter: start + 8_990 }).afterTerminal, 1, 'it was held back by its sender')
  const stop = fault('stop.worker', 66, 8_980, 'worker-1#1')
  t.notOk('afterTerminal' in counts({ ...inTime, cameAfter: start + 8_990 }, [stop]), 'which stood still')
  t.equal(counts({}, [stop]).afterTerminal, 1, 'it was built after its sender went on')
})

t.test('who shares a connection may come again when a neighbour ended it, and only then', async t => {
  const ended = start + 56
  const story = (downstream: string, neighbour: Partial<Arrival>, first: Partial<Arrival> = {}) =>
    history({
      planned: [{ ...planned, messageCode: downstream === 'left' ? 'chaos.pair' : 'chaos.plain' }],
      arrivals: [
        arrival({ downstream, closedAfter: ended, ...first }),
        arrival({ downstream, at: start + 500, attempt: 2, connection: 3 }),
        { ...unanswered, downstream, taskNo: 'b', ...neighbour }
      ],
      tasks: [task({ downstream, attempt: 2, attempts: rows(2), handledAt: iso(510) })]
    })
  const { answeredAt: _, ...unanswered } = arrival({ at: start + 55, answer: 'reset', closedAfter: ended })
  const unexplained = (...told: Parameters<typeof story>): number =>
    judge(story(...told), 1).counts.unexplained ?? 0
  t.equal(unexplained('left', {}), 0)
  t.equal(unexplained('left', { answer: 'hang', at: start - 1_900 }), 0, 'given up after its timeout')
  t.equal(
    unexplained('left', {}, { closedAfter: start + 600 }),
    1,
    'the connection ended after it came again'
  )
  t.equal(unexplained('left', { connection: 2 }), 1, 'of another connection')
  t.equal(unexplained('left', { answer: '500', answeredAt: start + 56 }), 1, 'it did not end')
  t.equal(
    unexplained('left', { answer: '200', builtAt: start - 600 }),
    0,
    'given up: a busy sink read it late'
  )
  t.equal(unexplained('left', { answer: '200', builtAt: start - 400 }), 1, 'too soon to be given up')
  t.equal(unexplained('left', { answer: 'late', answeredAt: start + 56 }), 1, 'nobody had given it up')
  t.equal(unexplained('plain', {}), 1, 'connections for one at a time')
  const answered = { answer: '200', answeredAt: start + 56, builtAt: start - 600 }
  const cpuSamples = (ms: number) =>
    Array.from({ length: 10 }, (_, n) => ({ at: start + 250 * (n - 4), ms, workedMs: 10 }))
  const whileIt = (ms: number) =>
    judge({ ...story('left', answered), cpuSamples: cpuSamples(ms) }, 1).counts.unexplained
  t.equal(whileIt(25), undefined, 'its sender had no processor to read the answer')
  t.equal(whileIt(10), 1, 'its sender had one')
  const recorded = story('left', {})
  const read = { ...recorded, tasks: [task({ downstream: 'left', attempt: 2, attempts: delivered(2) })] }
  t.equal(judge(read, 1).counts.unexplained, 1, 'its answer was read, says its row')
})

t.test(
  'an answer that left after the service may give up explains a second try, whenever it was read',
  async t => {
    const unexplained = (
      first: Partial<Arrival>,
      attempts = rows(2),
      cpuSamples: History['cpuSamples'] = []
    ): number => {
      const second = arrival({ at: start + 1_900, answeredAt: start + 1_910, attempt: 2 })
      const arrivals = [arrival({ at: start + 1_800, answeredAt: start + 1_850, ...first }), second]
      const tasks = [task({ attempt: 2, attempts, handledAt: iso(1_920) })]
      return judge(history({ arrivals, tasks, cpuSamples }), 1).counts.unexplained ?? 0
    }
    const givenUp = { builtAt: start + 50, closedAfter: start + 1_860 }
    t.equal(unexplained(givenUp), 0, 'a busy sink read it 1.75 s after it left')
    t.equal(unexplained({ builtAt: start + 50 }), 1, 'its sender kept the connection, so it had not given up')
    t.equal(unexplained({ ...givenUp, closedAfter: start + 1_901 }), 1, 'nor when it sent again')
    t.equal(unexplained({ ...givenUp, builtAt: start + 1_800 }), 1, 'it was answered 50 ms after it left')
    t.equal(unexplained(givenUp, delivered(2)), 1, 'its answer was in time, says its row')
    const inTime = { at: start + 50, answeredAt: start + 60 }
    const cpuSamples = (ms: number) =>
      Array.from({ length: 10 }, (_, n) => ({ at: start + 250 * n, ms, workedMs: 10 }))
    t.equal(unexplained(inTime, rows(2), cpuSamples(25)), 0, 'its sender had no processor to read the answer')
    t.equal(unexplained(inTime, rows(2), cpuSamples(10)), 1, 'its sender had one')
    t.equal(unexplained(inTime, delivered(2), cpuSamples(25)), 1, 'it was read, says its row')
  }
)

/** Both attempts were answered and have their rows. The second was sent after the lease of the first ended. */
const sentTwice = (faults: Fault[]) =>
  takenAlong({}, {}, { faults, tasks: [task({ attempt: 2, attempts: delivered(2), handledAt: iso(4_020) })] })

t.test('PostgreSQL explains a second try until the machine has worked for 2 s since it is back', async t => {
  const unexplained = (backAt: number, ms: number): number => {
    const faults = [fault('postgres.stop', backAt - 5_000, backAt)]
    const cpuSamples = Array.from({ length: 60 }, (_, n) => ({
      at: start + backAt + 250 * n,
      ms,
      workedMs: 10
    }))
    return judge({ ...sentTwice(faults), cpuSamples }, 1).counts.unexplained ?? 0
  }
  t.equal(unexplained(-1_000, 10), 0)
  t.equal(unexplained(-3_000, 10), 1, 'it is back for 3 s')
  t.equal(unexplained(-3_000, 20), 0, 'and the machine has worked for half of them')
})

t.test('who stood still explains what another sent meanwhile, for itself alone', async t => {
  const story = (process: string, to: number) => sentTwice([fault('thaw.worker', 20, to, process)])
  t.match(judge(story('worker-1#1', 10_020), 1), {
    verdict: 'green',
    duplicates: { causes: { 'thaw.worker': 1 } }
  })
  t.match(judge(story('worker-2#1', 10_020), 1).counts, { unexplained: 1 }, 'another one')
  t.match(judge(story('worker-1#1', 40), 1).counts, { unexplained: 1 }, 'it had gone on before it sent')
})

t.test('a failover explains what could not be written down meanwhile, and nothing later', async t => {
  for (const action of ['postgres.failover', 'redis.failover']) {
    t.match(judge(sentTwice([fault(action, 100, 3_000)]), 1), {
      verdict: 'green',
      duplicates: { causes: { [action]: 1 } }
    })
    t.match(judge(sentTwice([fault(action, 5_000, 9_000)]), 1).counts, { unexplained: 1 })
  }
})
