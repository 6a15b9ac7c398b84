// The answers of the vendors of alarm channels. A wrong one repeats a message, or loses it.
import { conversationReader } from '../conversation.ts'
import type { Script } from '../hostile-server.ts'
import { answer, formsOf, head, httpFloods } from '../http-scripts.ts'
import { Finding } from '../reader.ts'
import { secret } from '../subjects/alarms.ts'
import type { Sent } from '../../src/alarm/types.ts'

const valid: Script[] = [
  ...formsOf('{"errcode":0,"code":0,"errmsg":"ok"}'),
  ...formsOf('ok').slice(0, 3),
  ...formsOf(`{"errcode":130101,"code":11232,"errmsg":"too many for ${secret}"}`).slice(0, 4),
  answer(head('429 Too Many Requests', 'retry-after: 60', 'content-length: 0')),
  answer(head('404 Not Found', 'content-length: 0'))
]

export const reader = conversationReader<Sent[]>({
  name: 'alarm-answers',
  module: new URL('../subjects/alarms.js', import.meta.url),
  options: {},
  valid,
  floods: httpFloods,
  judge(all) {
    for (const sent of all) {
      if (sent === true) continue
      if (typeof sent.reason !== 'string' || sent.reason === '')
        throw new Finding('wrong', 'a refusal without a reason')
      if (sent.reason.length > 1_000)
        throw new Finding('wrong', `a reason of ${sent.reason.length} characters`)
      if (sent.reason.includes(secret)) throw new Finding('wrong', 'the secret of the channel is shown')
      if (sent.holdMs !== undefined && !(sent.holdMs >= 0 && sent.holdMs <= 3_600_000))
        throw new Finding('wrong', `a pause of ${sent.holdMs} ms`)
    }
  }
})
