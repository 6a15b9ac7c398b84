import t from 'tap'
import { batcher, isTimeout } from '../../src/db/batch.ts'
import type { Sql } from '../../src/db/pool.ts'
import { testDb } from '../support/postgres.ts'
import { until } from '../support/until.ts'

interface Gate {
  items: number[]
  open: (outs?: number[]) => void
  fail: (err: Error) => void
}

/** A writer. The test ends each of its statements. */
function gated() {
  const gates: Gate[] = []
  const write = async (items: number[]) =>
    await new Promise<number[]>((resolve, reject) => {
      gates.push({ items, open: outs => resolve(outs ?? items.map(item => item * 10)), fail: reject })
    })
  return { gates, write }
}

const pgError = (code: string) => Object.assign(new Error(code), { code })
const turn = async () => await new Promise(resolve => setImmediate(resolve))
const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i)

t.test('an idle system waits for nobody, a busy one shares commits', async t => {
  const { gates, write } = gated()
  const batch = batcher({ write, max: 100 })
  const first = batch.add(1)
  await turn()
  const second = batch.add(2)
  await turn()
  const rest = range(3, 50).map(item => batch.add(item))
  await turn()
  t.same(
    gates.map(gate => gate.items),
    [[1], [2]],
    'two statements at a time, the rest gathers'
  )
  t.equal(batch.size, 50)
  gates[1]?.open()
  t.equal(await second, 20)
  await turn()
  t.same(gates[2]?.items, range(3, 50))
  gates[0]?.open()
  gates[2]?.open()
  t.equal(await first, 10)
  t.same(
    await Promise.all(rest),
    range(3, 50).map(item => item * 10),
    'each gets its own answer'
  )
  t.equal(batch.size, 0)
})

t.test('what is added in one turn goes in one statement, up to the most', async t => {
  const { gates, write } = gated()
  const batch = batcher({ write, max: 4, inFlight: 1 })
  const all = range(1, 10).map(item => batch.add(item))
  for (let i = 0; i < 3; i++) {
    await turn()
    gates[i]?.open()
  }
  await Promise.all(all)
  t.same(
    gates.map(gate => gate.items.length),
    [4, 4, 2]
  )
})

t.test('an error that one item may have caused: the items are written again, one at a time', async t => {
  const written: number[][] = []
  const batch = batcher<number, number>({
    max: 100,
    isOfOne: isTimeout,
    async write(items) {
      written.push(items)
      if (items.includes(3)) throw pgError('57014')
      return items
    }
  })
  const done = await Promise.allSettled(range(1, 4).map(item => batch.add(item)))
  t.same(written, [[1, 2, 3, 4], [1], [2], [3], [4]])
  t.match(done, [{ value: 1 }, { value: 2 }, { status: 'rejected', reason: { code: '57014' } }, { value: 4 }])
})

t.test('after a statement the next one gathers, unless somebody waits for it or it is full', async t => {
  const { gates, write } = gated()
  const batch = batcher({ write, max: 4, inFlight: 1, restMs: 1_000, isUrgent: item => item >= 100 })
  const first = batch.add(1)
  await turn()
  t.same(gates[0]?.items, [1], 'the first is not held back')
  const began = performance.now()
  gates[0]?.open()
  await first
  const rested = batch.add(2)
  await turn()
  t.equal(gates.length, 1, 'it rests')
  await until('the second', () => gates.length === 2)
  // Timers of Node may be a millisecond early.
  t.ok(performance.now() - began > 990)
  t.same(gates[1]?.items, [2])
  gates[1]?.open()
  await rested
  const urgent = [batch.add(3), batch.add(100)]
  await turn()
  t.same(gates[2]?.items, [3, 100], 'somebody waits for one of them')
  const many = range(4, 8).map(item => batch.add(item))
  gates[2]?.open()
  await Promise.all(urgent)
  await turn()
  t.same(gates[3]?.items, range(4, 7), 'it is full')
  gates[3]?.open()
  await turn()
  t.equal(gates.length, 4, 'what is left rests again')
  await until('the rest of it', () => gates.length === 5)
  gates[4]?.open()
  await Promise.all(many)
  await batch.idle()
})

t.test('idle waits for what waits and what is being written', async t => {
  const { gates, write } = gated()
  const batch = batcher({ write, max: 1, inFlight: 1 })
  await batch.idle()
  const all = [batch.add(1), batch.add(2)]
  let idle = false
  const done = batch.idle().then(() => {
    idle = true
  })
  await turn()
  gates[0]?.open()
  await turn()
  t.equal(idle, false)
  gates[1]?.open()
  await done
  t.same(await Promise.all(all), [10, 20])
})

t.test('one bad row fails alone, its neighbours are stored', async t => {
  const { sql } = await testDb(t)
  await sql`create table kept (n int primary key check (n <> 13))`
  const batch = batcher({ write: insert(sql), max: 100 })
  const all = await Promise.allSettled(range(1, 40).map(n => batch.add(n)))
  t.same(
    all.map(one => one.status).flatMap((status, i) => (status === 'rejected' ? [i + 1] : [])),
    [13]
  )
  t.match(all[12], { reason: { code: '23514' } })
  const [row] = await sql<{ n: number }[]>`select count(*) as n from kept`
  t.equal(row?.n, 39)
})

t.test('a text that PostgreSQL cannot hold fails alone too', async t => {
  const { sql } = await testDb(t)
  const write = async (texts: string[]) => {
    const rows = await sql<{ text: string }[]>`select text from unnest(${texts}::text[]) as text`
    return rows.map(row => row.text)
  }
  const batch = batcher({ write, max: 10 })
  const all = await Promise.allSettled(['a', 'b\u0000', 'c'].map(text => batch.add(text)))
  t.match(all, [{ value: 'a' }, { reason: { code: '22021' } }, { value: 'c' }])
})

t.test(
  'what a trigger says to one row, and a corrupted row, fail one item and not its neighbours',
  async t => {
    const { sql } = await testDb(t)
    await sql.unsafe(`
    create table kept (n int primary key);
    create function refuse() returns trigger language plpgsql as $$begin raise exception 'not this one'; end$$;
    create trigger refuse before insert on kept for each row when (new.n = 13) execute function refuse()`)
    const inHand = new AbortController().signal
    const batch = batcher({ write: insert(sql), max: 100, retryUntilWritten: inHand })
    const all = await Promise.allSettled(range(1, 40).map(n => batch.add(n)))
    t.match(all[12], { reason: { code: 'P0001' } })
    t.equal(all.filter(one => one.status === 'fulfilled').length, 39)
    for (const code of ['XX001', 'XX002', '42501']) {
      const write = async (items: number[]) => {
        if (items.includes(2)) throw pgError(code)
        return items
      }
      const corrupted = batcher({ write, max: 10 })
      const done = await Promise.allSettled(range(1, 3).map(n => corrupted.add(n)))
      t.match(done, [{ value: 1 }, { reason: { code } }, { value: 3 }])
    }
  }
)

t.test("an error that is nobody's in particular fails all, and is not tried row by row", async t => {
  for (const err of [pgError('CONNECTION_CLOSED'), pgError('57P03'), new Error('no code')]) {
    const { gates, write } = gated()
    const batch = batcher({ write, max: 10 })
    const all = Promise.allSettled([batch.add(1), batch.add(2)])
    await turn()
    gates[0]?.fail(err)
    t.same(await all, [
      { status: 'rejected', reason: err },
      { status: 'rejected', reason: err }
    ])
    t.equal(gates.length, 1)
  }
})

t.test('a deadlock is tried again, not told', async t => {
  let calls = 0
  const write = async (items: number[]) => {
    if (++calls < 4) throw pgError(calls % 2 ? '40P01' : '40001')
    return items
  }
  const batch = batcher({ write, max: 10 })
  t.equal(await batch.add(7), 7)
  t.equal(calls, 4)
  const never = batcher({
    write: async () => {
      throw pgError('40P01')
    },
    max: 10
  })
  await t.rejects(never.add(1), { code: '40P01' }, 'but not for ever')
})

t.test('a producer hears of an outage at once', async t => {
  const batch = batcher({
    write: async () => {
      throw pgError('ECONNREFUSED')
    },
    max: 10
  })
  await t.rejects(batch.add(1), { code: 'ECONNREFUSED' })
})

t.test('an answer in hand outlives the outage, and loses only its bad neighbour', async t => {
  let calls = 0
  const write = async (items: number[]) => {
    if (++calls <= 2) throw pgError(calls === 1 ? 'CONNECTION_CLOSED' : '57P03')
    if (items.includes(13)) throw pgError('22003')
    return items
  }
  const batch = batcher({ write, max: 10, retryUntilWritten: new AbortController().signal })
  const all = await Promise.allSettled([12, 13, 14].map(item => batch.add(item)))
  t.match(all, [{ value: 12 }, { reason: { code: '22003' } }, { value: 14 }])
})

t.test('what is written of a batch is answered at once, and only what failed is written again', async t => {
  const writes: number[][] = []
  const write = async (items: number[]) => {
    writes.push(items)
    if (writes.length === 1)
      return {
        outs: items.map(item => (item % 2 ? item * 10 : undefined)),
        err: pgError('CONNECTION_CLOSED')
      }
    if (items.includes(4)) return { outs: [20, undefined], err: pgError('22003') }
    return items.map(item => item * 10)
  }
  const batch = batcher({ write, max: 10, retryUntilWritten: new AbortController().signal })
  const all = await Promise.allSettled(range(1, 4).map(item => batch.add(item)))
  t.match(all, [{ value: 10 }, { value: 20 }, { value: 30 }, { reason: { code: '22003' } }])
  t.same(writes, [
    [1, 2, 3, 4],
    [2, 4]
  ])
  t.equal(batch.size, 0)
})

/** A writer of rows, some of which another session has locked. */
function lockable(code: string, locked: Set<number>) {
  const writes: { items: number[]; lockMs: number }[] = []
  const write = async (items: number[], lockMs: number) => {
    writes.push({ items, lockMs })
    if (items.some(item => locked.has(item))) throw pgError(code)
    return items.map(item => item * 10)
  }
  /** How often the item was tried alone. */
  const alone = (item: number) => writes.filter(({ items }) => items.length === 1 && items[0] === item).length
  return { writes, write, alone }
}

for (const code of ['55P03', '57014'])
  t.test(`an item whose row is locked waits beside the others, not in front of them (${code})`, async t => {
    const locked = new Set([77])
    const { writes, write, alone } = lockable(code, locked)
    const batch = batcher({
      write,
      max: 200,
      inFlight: 1,
      retryUntilWritten: new AbortController().signal
    })
    const all = range(1, 200).map(item => batch.add(item))
    const free = await Promise.all(all.toSpliced(76, 1))
    t.equal(free.length, 199)
    t.ok(writes.length <= 17, `${writes.length} statements: the group is halved until the item is alone`)
    t.ok(writes[0]!.lockMs > writes[1]!.lockMs, 'only the first is patient')
    t.equal(await batch.add(300), 3_000, 'a later item is written')
    await until('the rest has left', () => batch.size === 1)
    await until('it was tried again', () => alone(77) > 2)
    locked.clear()
    t.equal(await all[76], 770)
    await batch.idle()
    t.equal(batch.size, 0)
    const after = writes.length
    t.equal(await batch.add(77), 770)
    t.equal(writes.length, after + 1)
    t.equal(writes.at(-1)?.lockMs, writes[0]?.lockMs, 'and the next one is patient again')
  })

t.test(
  'many locked items are tried again together, and one that stays locked holds back none of them',
  async t => {
    const locked = new Set(range(1, 30))
    const { write, alone } = lockable('55P03', locked)
    const batch = batcher({ write, max: 10, retryUntilWritten: new AbortController().signal })
    const all = range(1, 30).map(item => batch.add(item))
    await until('each was tried alone', () => range(1, 30).every(item => alone(item) > 0))
    locked.clear()
    locked.add(5)
    await Promise.all(all.toSpliced(4, 1))
    await until('the rest has left', () => batch.size === 1)
    locked.clear()
    t.equal(await all[4], 50)
  }
)

t.test('an item that skips locks is rejected if its row is locked', async t => {
  const locked = new Set([2])
  const { write, alone } = lockable('55P03', locked)
  const batch = batcher({
    write,
    max: 10,
    retryUntilWritten: new AbortController().signal,
    skipsLocked: item => item === 2
  })
  const done = await Promise.allSettled(range(1, 3).map(item => batch.add(item)))
  t.match(done, [{ value: 10 }, { status: 'rejected', reason: { code: '55P03' } }, { value: 30 }])
  await batch.idle()
  t.equal(alone(2), 1, 'it is not written again')
})

t.test('a locked item is given up at the end of the process, after one last try', async t => {
  const stop = new AbortController()
  const { write, alone } = lockable('55P03', new Set([2]))
  const batch = batcher({ write, max: 10, retryUntilWritten: stop.signal })
  const all = Promise.allSettled(range(1, 3).map(item => batch.add(item)))
  await until('it is alone', () => alone(2) > 0)
  stop.abort()
  t.match(await all, [{ value: 10 }, { reason: { code: '55P03' } }, { value: 30 }])
  await batch.idle()
})

t.test('a producer hears of a lock at once: its items are not tried one by one', async t => {
  const { writes, write } = lockable('55P03', new Set([2]))
  const batch = batcher({ write, max: 10 })
  const all = await Promise.allSettled([1, 2].map(item => batch.add(item)))
  t.match(all, [{ reason: { code: '55P03' } }, { reason: { code: '55P03' } }])
  t.equal(writes.length, 1)
})

t.test('at the end of the process even that gives up', async t => {
  const stop = new AbortController()
  let calls = 0
  const write = async () => {
    calls++
    throw pgError('ECONNREFUSED')
  }
  const batch = batcher({ write, max: 10, retryUntilWritten: stop.signal })
  const all = Promise.allSettled([batch.add(1)])
  await turn()
  stop.abort()
  t.match(await all, [{ reason: { code: 'ECONNREFUSED' } }])
  t.equal(calls, 2, 'with one last try')
  await batch.idle()
})

t.test('a writer that forgets an answer is found out', async t => {
  const batch = batcher({ write: async () => [1], max: 10 })
  const all = await Promise.allSettled([batch.add(1), batch.add(2)])
  t.match(all, [{ reason: /2 items were written, 1 answered/ }, { reason: /answered/ }])
})

function insert(sql: Sql) {
  return async (ns: number[]) => {
    const rows = await sql<
      { n: number }[]
    >`insert into kept select n from unnest(${ns}::int[]) as n returning n`
    return rows.map(row => row.n)
  }
}
