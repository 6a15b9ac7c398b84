// The judge of the receivers can find faults, including the fault of its mutant.
import t from 'tap'
import { mutants } from '../../chaos/mutants.ts'
import { judgeReceivers, type ReceiverHistory } from '../../chaos/receivers/judge.ts'
import { only } from '../support/only.ts'
import { exit } from './told.ts'

const deaths = { 'after-commit': 5, 'before-commit': 2, 'after-receipt': 1 }
const history: ReceiverHistory = {
  seed: 1,
  accepted: Array.from({ length: 150 }, (_, nth) => ({ taskNo: `points-${nth}`, points: 2 })),
  unhandled: [],
  granted: { 'postgres prompt': 300, 'mariadb late': 300 },
  unsent: { postgres: 0, mariadb: 0 },
  deaths: { postgres: deaths, mariadb: deaths },
  serviceKills: 3,
  repeats: 40,
  exits: [
    exit({ name: 'service-1', code: null, signal: 'SIGKILL', by: 'kill' }),
    exit({ name: 'mariadb-1', code: null, signal: 'SIGKILL', logTail: 'a warning\ndied after-commit\n' })
  ]
}

t.test('sums that are exact are green', t => {
  t.match(judgeReceivers(history), { verdict: 'green', findings: { length: 0 }, doubts: { length: 0 } })
  t.end()
})

t.test('too much, too little, and what never came to its end are red', t => {
  const red: Partial<ReceiverHistory>[] = [
    { granted: { ...history.granted, 'mariadb late': 302 } },
    { granted: { ...history.granted, 'postgres prompt': 298 } },
    { unhandled: ['points-1 mariadb-late SENDING'] },
    { unsent: { postgres: 1, mariadb: 0 } },
    { exits: [exit({ name: 'service-1', code: 1 })] },
    { exits: [exit({ name: 'mariadb-1', code: 1, logTail: 'died after-commit\nTypeError\n' })] },
    { exits: [exit({ name: 'mariadb-1', code: null, signal: 'SIGKILL', logTail: 'a warning\n' })] }
  ]
  for (const more of red)
    t.match(judgeReceivers({ ...history, ...more }), { verdict: 'red', findings: only(/./) })
  t.end()
})

t.test('a run in which too little happened proves nothing', t => {
  const doubtful: Partial<ReceiverHistory>[] = [
    { accepted: history.accepted.slice(0, 50), granted: { 'postgres prompt': 100 } },
    { deaths: { postgres: deaths, mariadb: { ...deaths, 'after-commit': 0 } } },
    { repeats: 0 }
  ]
  for (const more of doubtful) t.equal(judgeReceivers({ ...history, ...more }).verdict, 'inconclusive')
  t.end()
})

t.test('a verdict is charged with what its mutant must bring', t => {
  const { counts } = judgeReceivers({ ...history, granted: { 'postgres prompt': 302, 'mariadb late': 300 } })
  t.same(counts, { inexact: 1 })
  t.equal(mutants['receivers-without-table']?.expects, 'inexact')
  t.same(judgeReceivers({ ...history, unhandled: ['points-1 mariadb-late SENDING'] }).counts, { stuck: 1 })
  t.same(judgeReceivers({ ...history, exits: [exit({ name: 'postgres-2' })] }).counts, { crashed: 1 })
  t.end()
})
