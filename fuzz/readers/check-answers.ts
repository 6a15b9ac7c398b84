// The answers of producers to checks of half messages. A wrong one commits or ends what the producer did not mean.
import { conversationReader } from '../conversation.ts'
import type { Script } from '../hostile-server.ts'
import { answer, formsOf, head, httpFloods } from '../http-scripts.ts'
import { Finding } from '../reader.ts'
import type { ProducerAnswer } from '../../src/delivery/ask-producer.ts'

const valid: Script[] = [
  ...formsOf('{"state":"COMMITTED"}'),
  ...formsOf('{"state":"ROLLED_BACK","x":[1]}').slice(0, 2),
  answer(head('200 OK', 'content-length: 19'), '{"state":"UNKNOWN"}'),
  answer(head('409 Conflict', 'content-length: 0'))
]

export const reader = conversationReader<ProducerAnswer[]>({
  name: 'check-answers',
  module: new URL('../subjects/checks.js', import.meta.url),
  options: {},
  valid,
  floods: [...httpFloods, '{"state":"COMMITTED",', '[['],
  judge(answers, { connections }) {
    const sent = connections.flatMap(({ greeting = '', answers }) => [greeting, ...answers]).join('')
    // Compressed, the word is not to be seen.
    const isCoded = /content-encoding/i.test(sent)
    for (const { answer, reason } of answers) {
      if (answer === 'NONE' ? !reason : reason !== null)
        throw new Finding('wrong', `${answer} with the reason ${reason}`)
      // JSON may escape it: a mutated text that holds \u in a string is left to other tests.
      if (answer !== 'NONE' && !isCoded && !sent.includes(answer) && !sent.includes('\\u'))
        throw new Finding('wrong', `${answer}, which nobody said`)
    }
  }
})
