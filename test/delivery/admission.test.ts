import t from 'tap'
import type { NewTask } from '../../src/db/tasks.ts'
import { admission } from '../../src/delivery/admission.ts'
import { newDelivery, newTask } from '../support/new-task.ts'

const task = (more: Partial<NewTask> = {}, ...downstreams: string[]): NewTask =>
  newTask({
    deliveries: (downstreams.length > 0 ? downstreams : ['shop']).map(downstream =>
      newDelivery({ downstream, claim: false })
    ),
    ...more
  })
const claimed = (tasks: NewTask[]): boolean[] =>
  tasks.flatMap(one => one.deliveries.map(({ claim }) => claim))

function around(rooms: Record<string, number>) {
  const state = { paused: '', backlog: '', claiming: true }
  const admitting = admission({
    enqueuer: { room: name => rooms[name] ?? 0 },
    cluster: {
      isPaused: name => name === state.paused,
      hasBacklog: name => name === state.backlog,
      now: () => new Date(1_000_000)
    },
    owner: { number: () => 7 },
    claiming: () => state.claiming
  })
  return { state, admitting, rooms }
}

t.test('no more is claimed than there is room for, in one batch or in several', async t => {
  const { admitting } = around({ shop: 3 })
  const [first, second, third] = [[task(), task()], [task(), task()], [task()]]
  const taken = admitting.take(first)
  t.same(claimed(first), [true, true])
  const rest = admitting.take(second)
  t.same(claimed(second), [true, false], 'what is still on its way through the commit counts')
  admitting.give(taken)
  admitting.give(rest)
  admitting.take(third)
  t.same(claimed(third), [true])
})

t.test('each downstream has its own room', async t => {
  const { admitting } = around({ shop: 1, ledger: 2 })
  const tasks = [task({}, 'shop', 'ledger'), task({}, 'ledger', 'shop', 'nobody')]
  admitting.take(tasks)
  t.same(claimed(tasks), [true, true, true, false, false])
})

t.test('what waits for its time, or is skipped, takes nobody its place', async t => {
  const { admitting } = around({ shop: 1 })
  const skipped = task({ deliveries: [newDelivery({ downstream: 'shop', claim: false, skipped: true })] })
  const tasks = [
    skipped,
    task({ startAt: new Date(8e12) }),
    task({ delayMs: 5_000 }),
    task(),
    task({ delayMs: 5_000 })
  ]
  admitting.take(tasks)
  t.same(claimed(tasks), [false, true, true, true, false])
})

t.test('a start time that has passed, and a delay of 0, take room', async t => {
  for (const past of [{ startAt: new Date(999_999) }, { startAt: new Date(1_000_000) }, { delayMs: 0 }]) {
    const { admitting } = around({ shop: 2 })
    const tasks = [task(past), task(past), task(past)]
    admitting.take(tasks)
    t.same(claimed(tasks), [true, true, false], JSON.stringify(past))
  }
})

t.test('nothing is claimed of what is paused or has a backlog, or while we stop', async t => {
  const { admitting, state } = around({ shop: 5, ledger: 5 })
  const look = (): boolean[] => {
    const tasks = [task({}, 'shop', 'ledger')]
    admitting.give(admitting.take(tasks))
    return claimed(tasks)
  }
  t.same(look(), [true, true])
  state.paused = 'shop'
  t.same(look(), [false, true])
  state.backlog = 'ledger'
  t.same(look(), [false, false])
  Object.assign(state, { paused: '', backlog: '', claiming: false })
  t.same(look(), [false, false])
})
