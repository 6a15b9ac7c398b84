import t from 'tap'
import { explainChange, type JsonRow } from '../../model/replay.ts'

const at = (seconds: number): string => new Date(Date.UTC(2026, 10, 28, 10, 0, seconds)).toISOString()

const waiting: JsonRow = {
  task_id: 'a',
  downstream: 'warehouse',
  status: 0,
  phase: 'WAITING',
  next_action_at: at(0),
  attempt: 1,
  tries_left: 2,
  lost: 0,
  round_from: 1,
  round: null,
  position: null,
  owner: null,
  deliver_before: null,
  delivered_at: null,
  handled_at: null,
  handled_by: null,
  reason: null,
  updated_at: at(0)
}
const inFlight: JsonRow = {
  ...waiting,
  phase: 'IN_FLIGHT',
  attempt: 2,
  tries_left: 1,
  owner: 7,
  next_action_at: at(21),
  updated_at: at(1)
}
const handled: JsonRow = {
  ...inFlight,
  status: 1,
  phase: null,
  next_action_at: null,
  handled_by: 'send',
  handled_at: at(2),
  delivered_at: at(2),
  updated_at: at(2)
}
const failed: JsonRow = {
  ...inFlight,
  status: 2,
  phase: null,
  next_action_at: null,
  reason: 'REFUSED',
  position: 3,
  updated_at: at(2)
}

t.test('a change that a move explains has its name', async t => {
  t.equal(explainChange({ was: waiting, is: inFlight }), 'claim')
  t.equal(explainChange({ was: inFlight, is: handled }), 'handled')
  t.equal(explainChange({ was: { ...inFlight, position: 3 }, is: failed }), 'fail')
  t.equal(explainChange({ was: failed, is: { ...failed, position: -3, updated_at: at(3) } }), 'passed')
})

t.test('a change that no move explains is told', async t => {
  const wrong: [was: JsonRow, is: JsonRow, about: string][] = [
    [handled, { ...waiting, attempt: 2 }, 'an end is undone'],
    [waiting, { ...inFlight, attempt: 1 }, 'a claim without a new attempt'],
    [waiting, { ...inFlight, tries_left: 2 }, 'a claim that costs no try'],
    [
      inFlight,
      { ...waiting, attempt: 2, tries_left: 1, next_action_at: at(0), updated_at: at(2) },
      'due in the past'
    ],
    [waiting, { ...waiting, position: -3 }, 'a place that is lost']
  ]
  for (const [was, is, about] of wrong) t.equal(explainChange({ was, is }), undefined, about)
})
