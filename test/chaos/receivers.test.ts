// The judge of the receivers can fail, and its mutant still breaks what it says.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { judgeReceivers, type ReceiverHistory } from '../../chaos/receivers/judge.ts'
import { isForReceivers } from '../../chaos/receivers/main.ts'
import { handledOnce } from '../../chaos/receivers/run.ts'

const deaths = { 'after-commit': 5, 'before-commit': 2, 'after-receipt': 1 }
const history: ReceiverHistory = {
  seed: 1,
  accepted: Array.from({ length: 150 }, (_, nth) => ({ taskNo: `points-${nth}`, points: 2 })),
  unhandled: [],
  granted: { 'postgres prompt': 300, 'mariadb late': 300 },
  unsent: { postgres: 0, mariadb: 0 },
  deaths: { postgres: deaths, mariadb: deaths },
  serviceKills: 3,
  repeats: 40
}

t.test('sums that are exact are green', t => {
  t.match(judgeReceivers(history), { verdict: 'green', findings: [], doubts: [] })
  t.end()
})

t.test('too much, too little, and what never came to its end are red', t => {
  const red: Partial<ReceiverHistory>[] = [
    { granted: { ...history.granted, 'mariadb late': 302 } },
    { granted: { ...history.granted, 'postgres prompt': 298 } },
    { unhandled: ['points-1 mariadb-late SENDING'] },
    { unsent: { postgres: 1, mariadb: 0 } }
  ]
  for (const more of red)
    t.match(judgeReceivers({ ...history, ...more }), { verdict: 'red', findings: [/./] })
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

t.test('the text of the mutant is there once', t => {
  const text = readFileSync(path.resolve(import.meta.dirname, '../../src/consumer/receiver.js'), 'utf8')
  t.equal(text.split(handledOnce).length, 2)
  t.ok(isForReceivers(['--profile', 'receivers']))
  t.ok(isForReceivers(['--mutant', 'receivers-without-table']))
  t.notOk(isForReceivers(['--profile', 'quick', '--mutant', 'host-clock']))
  t.end()
})
