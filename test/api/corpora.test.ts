import t from 'tap'
import { bad, good, naughty, uncarried } from '../json/corpus.ts'
import { api, inject, order } from './fake.ts'

const bytesOf = (text: string | number[]) =>
  typeof text === 'string' ? Buffer.from(text) : Buffer.from(text)
const around = (body: Buffer, taskNo: string) =>
  Buffer.concat([
    Buffer.from(`{"taskNo":"${taskNo}","messageCode":"order.paid","messageBody":`),
    body,
    Buffer.from('}')
  ])

t.test(
  'a good text is taken as a body and delivered as it was written; as a whole request it is no task',
  async t => {
    const { app, asked } = await api(t)
    for (const [n, [story, text]] of good.entries()) {
      const taken = await inject(app, '/tasks', around(Buffer.from(text), `good-${n}`))
      if (text.trim() === 'null') {
        t.equal(taken.statusCode, 422, story)
      } else {
        t.equal(taken.statusCode, 201, story)
        t.equal(asked.at(-1)?.messageBody, text.replace(/^[ \t\r\n]+|[ \t\r\n]+$/g, ''), story)
      }
      t.equal((await inject(app, '/tasks', text)).statusCode, 422, `${story}, alone`)
    }
  }
)

t.test('a bad text is refused with 400, alone, as a body, in a batch and in a receipt', async t => {
  const { app, stored } = await api(t)
  for (const [story, text] of [...bad, ...uncarried]) {
    const bytes = bytesOf(text)
    const inBatch = Buffer.concat([Buffer.from('{"tasks":['), around(bytes, 'bad'), Buffer.from(']}')])
    const inReceipt = Buffer.concat([
      Buffer.from('{"taskNo":"bad","messageCode":"order.paid","data":'),
      bytes,
      Buffer.from('}')
    ])
    for (const [url, body] of [
      ['/tasks', bytes],
      ['/tasks', around(bytes, 'bad')],
      ['/tasks/batch', inBatch],
      ['/callback', inReceipt]
    ] as const) {
      const answer = await inject(app, url, body, { 'ackbox-callback-token': 'good' })
      // A receipt may be 80 KiB long. A longer body is refused unread.
      const status = url === '/callback' && body.length > 80 * 1024 ? 413 : 400
      t.equal(answer.statusCode, status, `${story}: ${url}`)
      t.match(answer.json(), { status, code: String })
      t.ok(answer.body.length < 1_500, 'and not echoed at length')
    }
  }
  t.equal(stored.size, 0)
})

t.test('naughty strings in every text member: taken verbatim or refused, never 5xx', async t => {
  const { app, asked } = await api(t)
  const members = ['taskNo', 'messageCode', 'sceneType', 'deliverStartTime', 'deliverBefore']
  for (const [n, text] of naughty.entries()) {
    // Some of them would break the lines of the report.
    const name = encodeURI(text).slice(0, 80)
    const body = { orderId: text, [text]: text }
    const taken = await inject(app, '/tasks', {
      ...order,
      taskNo: `naughty-${n}`,
      messageBody: body,
      extend: { note: text }
    })
    if (/[\0]/.test(text)) {
      t.equal(taken.statusCode, 400, name)
    } else if (taken.statusCode === 201) {
      t.equal(asked.at(-1)?.messageBody, JSON.stringify(body), name)
      const shown = await app.inject(`/tasks/naughty-${n}`)
      t.match(shown.json(), { messageBody: body, extend: { note: text } }, name)
    } else t.equal(taken.statusCode, 422, name)
    for (const member of members) {
      const answer = await inject(app, '/tasks', { ...order, [member]: text })
      t.ok([200, 201, 400, 422].includes(answer.statusCode), `${name} as ${member}: ${answer.statusCode}`)
    }
    for (const member of ['taskNo', 'messageCode', 'downstream', 'result', 'reason', 'data']) {
      const receipt = { taskNo: 'naughty-0', messageCode: 'order.paid', [member]: text }
      const answer = await inject(app, '/callback', receipt, { 'ackbox-callback-token': 'good' })
      t.ok(answer.statusCode < 500, `${name} as ${member} of a receipt: ${answer.statusCode}`)
    }
  }
})
