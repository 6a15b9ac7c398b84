// The check of a half message, as in the dispatcher: it asks a hostile producer.
import type { Subject } from '../child.ts'
import type { Played } from '../conversation.ts'
import { producerAsker, type ProducerAnswer } from '../../src/delivery/ask-producer.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { httpTransport } from '../../src/transport/http/http.ts'

const usualMs = 300
const closeMs = 5_000
/** Two, so that the second one meets the state that the first one left. */
const checks = [1, 2]

const task = {
  id: '00000000-0000-4000-8000-000000000000',
  taskNo: 't-1',
  messageCode: 'order.paid',
  sceneType: '',
  messageBody: '{}',
  deliverStartTime: null,
  needCallback: null,
  retryTimes: null,
  orderingKey: null,
  extend: {},
  traceparent: null,
  createdAt: new Date(0),
  createdBy: 'fuzz'
}
const claim = { task, preparedAt: new Date(0), checkAfterMs: 1_000, answered: 0, unanswered: 0, ageMs: 1_000 }

export const subject: Subject<object, Played> = async () => {
  const open = guard({ allow: undefined, embedded: true, deny: [] })
  return {
    async play({ port, patience = 1 }, within) {
      const timeoutMs = usualMs * patience
      const transport = httpTransport({ guard: open })
      const late = new AbortController()
      const timer = setTimeout(() => late.abort(), timeoutMs)
      const ask = producerAsker({
        handlers: new Map([['order.paid', { checkBack: () => ({ url: `http://127.0.0.1:${port}/check` }) }]]),
        transport,
        secret: 'a secret of the fuzzer',
        secretPrevious: undefined,
        concurrency: 2,
        cutOff: late.signal,
        now: () => new Date()
      })
      const answers: ProducerAnswer[] = []
      try {
        for (const check of checks) answers.push(await within('check', timeoutMs, ask({ ...claim, check })))
      } finally {
        clearTimeout(timer)
        await within('close', closeMs, transport.close())
      }
      return answers
    }
  }
}
