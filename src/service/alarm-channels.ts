import { channelName, parseChannel, type ChannelConfig } from '../alarm/channel-config.ts'
import { isServiceLink } from './service-links.ts'
import type { Settings } from './settings.ts'

const prefix = 'ALARM_CHANNEL_'

/** The channels of all settings. No message repeats a URL: it may hold a token. */
export function readAlarmChannels(
  env: Record<string, string | undefined>,
  { ALARM_CHANNELS = '{}', ALARM_WEBHOOK_URL, ALARM_WEBHOOK_SECRET }: Settings
): { channels: ChannelConfig[]; wrong: string[] } {
  const channels = new Map<string, ChannelConfig>()
  const wrong: string[] = []
  const read = (variable: string, name: string, given: unknown): void => {
    const channel = parseChannel(name, given)
    if (typeof channel === 'string') wrong.push(`${variable} ${channel}`)
    else channels.set(name, channel)
  }
  if (ALARM_WEBHOOK_URL !== undefined) {
    read('ALARM_WEBHOOK_URL', 'webhook', {
      url: `webhook+${ALARM_WEBHOOK_URL}`,
      ...(ALARM_WEBHOOK_SECRET && { secret: ALARM_WEBHOOK_SECRET })
    })
  }
  for (const [name, value] of jsonMembers(ALARM_CHANNELS, wrong)) {
    if (channelName.test(name)) read(`ALARM_CHANNELS: ${name}`, name, value)
    else wrong.push(`ALARM_CHANNELS: ${JSON.stringify(name)} must be 1 to 32 small letters, digits or '-'`)
  }
  for (const [variable, url] of Object.entries(env)) {
    if (!variable.startsWith(prefix) || !url || isServiceLink(variable, url)) continue
    const name = variable.slice(prefix.length).toLowerCase().replaceAll('_', '-')
    if (/^[A-Z0-9_]+$/.test(variable) && channelName.test(name)) read(variable, name, url)
    else wrong.push(`${variable} names no channel: ${prefix} and 1 to 32 capital letters, digits or _`)
  }
  return { channels: [...channels.values()], wrong }
}

function jsonMembers(json: string, wrong: string[]): [name: string, value: unknown][] {
  try {
    const given: unknown = JSON.parse(json)
    if (typeof given === 'object' && given !== null && !Array.isArray(given)) return Object.entries(given)
  } catch {} // reported below
  wrong.push('ALARM_CHANNELS must be a JSON object: {"ops":"https://hooks.slack.com/services/…"}')
  return []
}
