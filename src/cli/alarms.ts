// ackbox alarms: lists the channels that get alarms, and tests one.
import type { ChannelConfig } from '../alarm/channel-config.ts'
import { openChannels } from '../alarm/open-channels.ts'
import { commandLine } from '../runtime/package.ts'
import { environment, readConfig, type Config } from '../service/config.ts'
import { readArguments, readVerb, refuseSurplus, UsageError } from './arguments.ts'
import { secretOf } from './database.ts'

export const help = `${commandLine('alarms list')}
${commandLine('alarms test NAME')}

list shows the channels of ALARM_CHANNELS, ALARM_CHANNEL_<NAME> and ALARM_WEBHOOK_URL, with their language and the alarms
that each gets.
test sends one message to a channel and shows whether the channel accepted it. It needs no database.
Channels: dingtalk, feishu, wecom, slack, pagerduty, alertmanager, mail, webhook. See docs/alarms.md.
Exit: 0 done · 1 an error, which is printed, or the channel did not accept the message`

export async function run(args: string[]): Promise<void> {
  const { positionals } = readArguments({ args, allowPositionals: true })
  const [first, ...words] = positionals
  const verb = readVerb(first, ['list', 'test'])
  const takes = { words: verb === 'list' ? [] : ['NAME'], options: [] }
  refuseSurplus(`alarms ${verb}`, takes, { words, given: [] })
  const config = readConfig(environment())
  if (verb === 'list') list(config)
  else await test(config, words[0])
}

function list({ alarmChannels }: Config): void {
  if (alarmChannels.length === 0)
    console.log('No channel is set: set ALARM_CHANNELS. Alarms are also in the log and in GET /alarms.')
  for (const channel of alarmChannels) console.log(channelLine(channel))
}

/** Contains the host but not the path, which may hold a token. */
function channelLine({ name, kind, language, url, rule, sendResolved }: ChannelConfig): string {
  const alarms = Object.entries(rule).map(([member, values]) => `${member} ${values.join(',')}`)
  const end = sendResolved ? '  also told when it is resolved' : ''
  return `${name}  ${kind}  ${language}  ${new URL(url).host}  ${alarms.join('; ') || 'all alarms'}${end}`
}

async function test(config: Config, name: string | undefined): Promise<void> {
  const names = config.alarmChannels.map(channel => channel.name)
  const channelConfig = config.alarmChannels.find(channel => channel.name === name)
  if (!channelConfig)
    throw new UsageError(
      `${name === undefined ? 'The name of the channel is missing' : `Unknown channel: ${name}`}. ${names.length > 0 ? `The channels are ${names.join(', ')}.` : 'None is set: set ALARM_CHANNELS.'}`
    )
  const secret = secretOf(config)
  const { publicUrl, egressAllow = [] } = config
  const [channel] = await openChannels([channelConfig], { secret, publicUrl, egressAllow })
  if (!channel) return
  const now = new Date().toISOString()
  const result = await channel.send(
    {
      type: 'ackbox.alarm',
      id: `alarm_test_${Date.now()}`,
      downstream: '',
      kind: 'TEST',
      since: now,
      count: 1,
      deliveries: [{ taskNo: 'test', messageCode: 'test', attempt: 1, reason: 'TEST', createdAt: now }]
    },
    new AbortController().signal
  )
  await channel.close()
  const label = `${channelConfig.name} (${channelConfig.kind})`
  if (result !== true) throw new UsageError(`${label} did not accept the message: ${result.reason}`)
  console.log(`${label} accepted the message.`)
}
