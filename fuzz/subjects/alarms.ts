// The channels of alarms over HTTP: each sends one message to a hostile vendor.
import type { Subject } from '../child.ts'
import type { Played } from '../conversation.ts'
import { parseChannel, type ChannelConfig } from '../../src/alarm/channel-config.ts'
import { openChannels } from '../../src/alarm/open-channels.ts'
import type { AlarmMessage, Sent } from '../../src/alarm/types.ts'

const usualMs = 300
const closeMs = 5_000
export const secret = 'canary-token-of-the-channel'
/** One of each way to read an answer: by a code, by a word, by the status. */
const kinds = ['dingtalk', 'feishu', 'slack', 'webhook']

const message: AlarmMessage = {
  type: 'ackbox.alarm',
  id: 'alarm_1',
  downstream: 'warehouse',
  kind: 'FAILED',
  since: '2026-01-02T03:04:05.000Z',
  count: 1,
  deliveries: []
}

function configOf(kind: string, port: number): ChannelConfig {
  const config = parseChannel(kind, `${kind}+http://127.0.0.1:${port}/${secret}?access_token=${secret}`)
  if (typeof config === 'string') throw new Error(`${kind}: ${config}`)
  return config
}

export const subject: Subject<object, Played> = async () => ({
  async play({ port, patience = 1 }, within) {
    const timeoutMs = usualMs * patience
    const channels = await openChannels(
      kinds.map(kind => configOf(kind, port)),
      { secret: 'a secret of the fuzzer', publicUrl: 'https://ackbox.test', egressAllow: [] }
    )
    const late = new AbortController()
    const timer = setTimeout(() => late.abort(), timeoutMs)
    const sent: Sent[] = []
    try {
      for (const channel of channels)
        sent.push(await within(channel.kind, timeoutMs, channel.send(message, late.signal)))
    } finally {
      clearTimeout(timer)
      await Promise.all(channels.map(channel => within('close', closeMs, channel.close())))
    }
    return sent
  }
})
