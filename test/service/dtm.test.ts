// The protocol of DTM over whole processes: requests as its client for Go writes them, and steps that arrive when they should.
// Takes long: npm run test:long.
import t, { type Test } from 'tap'
import { dtmTaskNo } from '../../src/handler/dtm.ts'
import { producer, type Producer } from '../support/halves.ts'
import { only } from '../support/only.ts'
import { call, settled, start, untilHeard, type Process } from '../support/service.ts'
import type { SinkOptions } from '../support/sink.ts'
import { stage, tally, type Stage } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

interface World {
  on: Stage
  shop: Producer
  env: Record<string, string>
  /** The address of a step. */
  at: (path: string) => string
}

async function dtmStage(
  t: Test,
  answer: Producer['answer'] = () => ({ status: 425, body: '' }),
  options: SinkOptions = {}
): Promise<World> {
  const on = await stage(t, options)
  if (!on) throw new Error('no stage')
  const shop = await producer(t, answer)
  const env = {
    ...on.env,
    DTM: 'on',
    DTM_TARGETS: `sink=${on.downstream.url},shop=${new URL(shop.url).origin}`,
    EGRESS_ALLOW: `${on.env['EGRESS_ALLOW']},${new URL(shop.url).host}`
  }
  return { on, shop, env, at: path => `${on.downstream.url}${path}` }
}

/** Posts as the client for Go does. It judges an answer by its text too: done, failure, ongoing, or the text of an error. */
async function go({ url }: Process, operation: string, message: object): Promise<string> {
  const { status, text } = await untilHeard(async () => {
    const answer = await fetch(`${url}/api/dtmsvr/${operation}`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'user-agent': 'go-resty/2.11.0 (https://github.com/go-resty/resty)'
      },
      body: JSON.stringify(message)
    })
    return { status: answer.status, text: await answer.text() }
  })
  if (status === 425 || text.includes('ONGOING')) return 'ongoing'
  if (status === 409 || text.includes('FAILURE')) return 'failure'
  return status === 200 ? 'done' : text
}

const goMessage = (gid: string, actions: readonly string[], more: object = {}) => ({
  gid,
  trans_type: 'msg',
  steps: actions.map(action => ({ action })),
  payloads: actions.map((_, at) => `{"step": ${at + 1}.0}`),
  concurrent: false,
  protocol: 'http',
  rollback_reason: '',
  ...more
})

async function stepsOf({ url }: Process, gid: string, count: number): Promise<unknown[]> {
  const all = Array.from({ length: count }, (_, at) => settled(url, dtmTaskNo(gid, `0${at + 1}`)))
  return (await Promise.all(all)).map(one => one.body?.['status'])
}

t.test('steps come one after the other, as DTM calls them, with their payloads as they are', async t => {
  let letGo = (): void => {}
  const held = new Promise<number>(resolve => {
    letGo = () => resolve(200)
  })
  const { on, env, at, shop } = await dtmStage(t, undefined, {
    answer: ({ path }) => (path.startsWith('/one') ? held : 200)
  })
  const one = await start(t, env)
  const message = goMessage('g 1/ä', [at('/one?a=b%20c'), at('/two'), at('/three')], {
    query_prepared: shop.url,
    branch_headers: { 'x-tenant': 'seven' },
    payloads: ['{"step": 1.0, "né": "支付"}', '', 'no JSON at all']
  })
  t.equal(await go(one, 'prepare', message), 'done')
  t.equal(on.downstream.requests.length, 0)
  t.equal(await go(one, 'submit', message), 'done')
  await on.downstream.received(1)
  t.match(
    await call(`${one.url}/tasks/${dtmTaskNo('g 1/ä', '03')}`),
    {
      body: { status: 'SENDING', after: only(dtmTaskNo('g 1/ä', '02')), deliveries: [{ phase: 'BLOCKED' }] }
    },
    'while the first is not done'
  )
  t.equal(on.downstream.requests.length, 1)
  letGo()
  t.same(await stepsOf(one, 'g 1/ä', 3), ['HANDLED', 'HANDLED', 'HANDLED'])
  const gid = 'gid=g+1%2F%C3%A4&trans_type=msg'
  t.match(on.downstream.requests, [
    {
      path: `/one?a=b%20c&${gid}&branch_id=01&op=action`,
      body: '{"step": 1.0, "né": "支付"}',
      headers: { 'content-type': 'application/json', 'x-tenant': 'seven', 'webhook-signature': String }
    },
    { path: `/two?${gid}&branch_id=02&op=action`, body: '' },
    { path: `/three?${gid}&branch_id=03&op=action`, body: 'no JSON at all', headers: { 'x-tenant': 'seven' } }
  ])
  t.equal(on.downstream.requests.length, 3)
  t.same(shop.checks, [], 'nobody was asked')
  const { body } = await call(`${one.url}/handlers`)
  const codes = ((body?.['handlers'] ?? []) as { messageCode: string }[]).map(handler => handler.messageCode)
  t.same(codes, ['test.plain', 'test.receipt', 'dtm.sink', 'dtm.shop'])
  t.match(await call(`${one.url}/tasks?bizType=dtm&bizKey=${encodeURIComponent('g 1/ä')}`), {
    body: { tasks: { length: 3 } }
  })
})

t.test('concurrent steps wait for nobody, and a delay that only submit tells is kept', async t => {
  const { on, env, at, shop } = await dtmStage(t, undefined, { answer: () => 'hang' })
  const one = await start(t, env)
  const message = goMessage('g2', [at('/1'), at('/2'), at('/3')], {
    concurrent: true,
    query_prepared: shop.url
  })
  t.equal(await go(one, 'prepare', message), 'done')
  const began = Date.now()
  t.equal(await go(one, 'submit', { ...message, custom_data: '{"delay":2}' }), 'done')
  await on.downstream.received(3)
  t.same(on.downstream.requests.map(({ path }) => path.slice(0, 2)).toSorted(), ['/1', '/2', '/3'])
  for (const { at } of on.downstream.requests) t.ok(at - began >= 2_000, 'not before its time')
})

t.test('a step that says FAILURE or ONGOING, by status or by text, comes again until it is done', async t => {
  const first: { [branch: string]: { status: number; body: string; reason: string } } = {
    '01': { status: 200, body: '{"dtm_result":"FAILURE"}', reason: 'not_accepted' },
    '02': { status: 200, body: '{"dtm_result":"ONGOING"}', reason: 'not_accepted' },
    '03': { status: 409, body: '', reason: 'http_409' },
    '04': { status: 425, body: '', reason: 'http_425' }
  }
  const branches = Object.keys(first)
  const asked = new Set<string>()
  const { env, shop } = await dtmStage(t, ({ taskNo }) => {
    const branch = branches.find(one => dtmTaskNo('g3', one) === taskNo) ?? ''
    const reply = asked.has(branch) ? undefined : first[branch]
    asked.add(branch)
    return reply ?? { status: 200, body: '{"dtm_result":"SUCCESS"}' }
  })
  const one = await start(t, env)
  const message = goMessage(
    'g3',
    branches.map(() => shop.url),
    { concurrent: true }
  )
  t.equal(await go(one, 'submit', message), 'done')
  t.same(
    await stepsOf(one, 'g3', branches.length),
    branches.map(() => 'HANDLED')
  )
  for (const [branch, { reason }] of Object.entries(first))
    t.match(
      await call(`${one.url}/tasks/${dtmTaskNo('g3', branch)}`),
      {
        body: { deliveries: [{ attempts: only({ outcome: 'failed', reason }, { outcome: 'delivered' }) }] }
      },
      branch
    )
})

t.test('who is asked answers as DTM has it: 200, 409, 425, or the words in a 200', async t => {
  const answers: Record<string, Producer['answer']> = {
    committed: () => ({ status: 200, body: '{"dtm_result":"SUCCESS"}' }),
    refused: () => ({ status: 409, body: '' }),
    said: () => ({ status: 200, body: '{"dtm_result":"FAILURE"}' }),
    early: () => ({ status: 425, body: '' }),
    ongoing: () => ({ status: 200, body: '"ONGOING"' }),
    broken: () => ({ status: 500, body: 'FAILURE of a disk, ONGOING' }),
    lost: () => ({ status: 404, body: 'FAILURE: no such page; ONGOING' }),
    old: () => ({ status: 302, body: '' })
  }
  const asked: string[] = []
  const { on, env, at, shop } = await dtmStage(t)
  shop.answer = check => {
    // The gid is in the query; the task number is a hash of it.
    const gid = Object.keys(answers).find(one => check.taskNo === dtmTaskNo(one, '01')) ?? ''
    asked.push(gid)
    t.equal(check.body, '')
    return answers[gid]?.(check) ?? { status: 404, body: '' }
  }
  const one = await start(t, env)
  for (const gid of Object.keys(answers)) {
    const message = goMessage(gid, [at('/in'), at('/out')], {
      query_prepared: `${shop.url}?a=1`,
      timeout_to_fail: 3_600
    })
    t.equal(await go(one, 'prepare', message), 'done')
    await call(`${one.url}/tasks/${dtmTaskNo(gid, '01')}/check`, {})
  }
  const last = async (gid: string) => {
    const { body } = await call(`${one.url}/tasks/${dtmTaskNo(gid, '01')}`)
    return Object(body?.['prepared'])['lastAnswer'] as unknown
  }
  const said: Record<string, unknown> = {}
  for (const gid of Object.keys(answers)) said[gid] = await last(gid)
  t.same(said, {
    committed: 'COMMITTED',
    refused: 'ROLLED_BACK',
    said: 'ROLLED_BACK',
    early: 'UNKNOWN',
    ongoing: 'UNKNOWN',
    broken: 'NONE',
    lost: 'NONE',
    old: 'NONE'
  })
  t.same(asked, Object.keys(answers))
  t.same(await stepsOf(one, 'committed', 2), ['HANDLED', 'HANDLED'])
  t.equal(on.downstream.requests.length, 2, 'and nothing of the others')
  t.equal(await go(one, 'submit', goMessage('refused', [at('/in'), at('/out')])), 'failure')
  t.equal(await go(one, 'submit', goMessage('early', [at('/in'), at('/out')])), 'done')
})

t.test('submit, abort and a check at once: all of a message is delivered, or nothing', async t => {
  const { on, env, at, shop } = await dtmStage(t, () => ({ status: 200, body: '' }))
  const [one, two] = [await start(t, env), await start(t, env)]
  const gids = Array.from({ length: 24 }, (_, n) => `race-${n}`)
  const committed: string[] = []
  await Promise.all(
    gids.map(async (gid, n) => {
      const message = goMessage(gid, [at('/a'), at('/b'), at('/c')], {
        query_prepared: shop.url,
        concurrent: n % 2 === 0
      })
      t.equal(await go(one, 'prepare', message), 'done')
      const [submitted, again, aborted] = await Promise.all([
        go(one, 'submit', message),
        go(two, 'submit', message),
        go(two, 'abort', message),
        n % 3 === 0 ? call(`${one.url}/tasks/${dtmTaskNo(gid, '01')}/check`, {}) : null
      ])
      t.equal(submitted, again, gid)
      t.equal(submitted === 'done', aborted === 'failure', `${gid}: ${submitted}, ${aborted}`)
      if (submitted === 'done') committed.push(gid)
    })
  )
  for (const gid of committed) t.same(await stepsOf(one, gid, 3), ['HANDLED', 'HANDLED', 'HANDLED'], gid)
  t.equal(on.downstream.requests.length, 3 * committed.length)
  t.same(await tally(on.sql), committed.length > 0 ? { HANDLED: 3 * committed.length } : {})
})

t.test('killed around the commit of a message with several steps, they are all there or none', async t => {
  // A submit first checks whether the message exists, by an insert that then does nothing.
  for (const [moment, stored] of [
    ['accept.before_commit=kill#1', 1],
    ['accept.before_commit=kill#2', 1],
    ['accept.after_commit=kill#2', 2]
  ] as const) {
    const { on, env, at, shop } = await dtmStage(t, () => ({ status: 200, body: '' }))
    const one = await start(t, { ...env, FAILPOINTS: moment })
    const message = goMessage('g', [at('/a'), at('/b')], { query_prepared: shop.url, timeout_to_fail: 1 })
    t.equal(await go(one, 'prepare', message), 'done')
    await t.rejects(go(one, 'submit', message))
    t.match(await one.exited, { signal: 'SIGKILL' })
    const [row] = await on.sql<{ n: number }[]>`select count(*)::int as n from task`
    t.equal(row?.n, stored, moment)
    const two = await start(t, env)
    await until(
      'it is committed',
      async () => (await call(`${two.url}/tasks/${dtmTaskNo('g', '02')}`)).status === 200
    )
    t.same(await stepsOf(two, 'g', 2), ['HANDLED', 'HANDLED'])
    t.equal(await go(two, 'submit', message), 'done', 'said again')
  }
})

t.test('killed around a submit that nobody prepared, and submitted again, it is delivered whole', async t => {
  for (const [moment, stored] of [
    ['accept.before_commit=kill#1', 0],
    ['accept.after_commit=kill#1', 3]
  ] as const) {
    const { on, env, at } = await dtmStage(t)
    const one = await start(t, { ...env, FAILPOINTS: moment })
    const message = goMessage('g', [at('/a'), at('/b'), at('/c')])
    await t.rejects(go(one, 'submit', message))
    t.match(await one.exited, { signal: 'SIGKILL' })
    const [row] = await on.sql<{ n: number }[]>`select count(*)::int as n from task`
    t.equal(row?.n, stored, moment)
    const two = await start(t, env)
    t.equal(await go(two, 'submit', message), 'done')
    t.same(await stepsOf(two, 'g', 3), ['HANDLED', 'HANDLED', 'HANDLED'])
  }
})

t.test('off, or without its targets', async t => {
  const { env, on } = await dtmStage(t)
  const off = await start(t, { ...env, DTM: 'off' })
  t.equal((await call(`${off.url}/api/dtmsvr/newGid`)).status, 404)
  const { body } = await call(`${off.url}/handlers`)
  const codes = ((body?.['handlers'] ?? []) as { messageCode: string }[]).map(handler => handler.messageCode)
  t.ok(codes.length > 0)
  t.same(
    codes.filter(code => code.startsWith('dtm')),
    []
  )
  await t.rejects(start(t, { ...on.env, DTM: 'on' }), /DTM=on needs DTM_TARGETS/)
})
