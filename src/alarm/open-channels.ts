import { isMissingPackage, SetupError } from '../runtime/errors.ts'
import { defined } from '../domain/optional-members.ts'
import { alarmWebhook, signingSecret } from '../domain/tokens.ts'
import { guard } from '../transport/egress/guard.ts'
import { httpTransport } from '../transport/http/http.ts'
import type { Answer } from '../transport/types.ts'
import { queryOf, type ChannelConfig } from './channel-config.ts'
import { formats, rateOf } from './format.ts'
import type { AlarmChannel, AlarmMessage, Sent } from './types.ts'

export interface ChannelDeps {
  /** SECRET: signs webhooks that have no secret of their own. */
  secret: string
  publicUrl: string
  egressAllow: string[]
  /** The database's time, ms since 1970. By default the host's. */
  now?: () => number
}

const timeoutMs = 10_000
/** A mail server may check a mail for half a minute before it takes it. */
const mailTimeoutMs = 60_000

/** Opens no connection, so a channel that is unreachable does not stop the service. Throws when a package is missing. */
export async function openChannels(
  configs: readonly ChannelConfig[],
  deps: ChannelDeps
): Promise<AlarmChannel[]> {
  return await Promise.all(configs.map(config => openChannel(config, deps)))
}

/** Rejects with SetupError when a package of these channels is missing. */
export async function needChannels(configs: readonly ChannelConfig[]): Promise<void> {
  if (configs.some(({ kind }) => kind === 'mail')) await loadMail()
}

async function loadMail() {
  try {
    return await import('./mail.ts')
  } catch (error) {
    if (!isMissingPackage(error)) throw error
    throw new SetupError('an alarm channel that sends mail needs a package: npm install nodemailer@10')
  }
}

async function openChannel(config: ChannelConfig, deps: ChannelDeps): Promise<AlarmChannel> {
  const { name, kind, rule, sendResolved, digestMs } = config
  const hide = hider(config)
  const way = kind === 'mail' ? await mail(config, deps) : overHttp(config, kind, deps)
  return {
    name,
    kind,
    rule,
    sendResolved,
    digestMs,
    rate: rateOf(kind),
    async send(message, signal) {
      const result = await way.send(message, signal)
      return result === true ? true : { ...result, reason: hide(result.reason) }
    },
    close: way.close
  }
}

type Way = Pick<AlarmChannel, 'send' | 'close'>

function overHttp(
  config: ChannelConfig,
  kind: Exclude<ChannelConfig['kind'], 'mail'>,
  { secret, publicUrl, egressAllow, now = Date.now }: ChannelDeps
): Way {
  const format = formats[kind]
  const channel =
    kind === 'webhook' ? { ...config, secret: config.secret ?? signingSecret(secret, alarmWebhook) } : config
  const transport = httpTransport({ guard: guardFor(new URL(config.url), egressAllow) })
  return {
    async send(message, signal) {
      const about = { more: listUrl(publicUrl, message), now: now() }
      const { url, body, headers = {}, signed = {} } = format.request(channel, message, about)
      let verdict: Sent = true
      const accepted = (answer: Answer): boolean => {
        verdict = format.judge(answer)
        return verdict === true
      }
      const outcome = await transport.send(
        { url, body, headers },
        { downstream: alarmWebhook, timeoutMs, signal, headers: () => signed },
        accepted
      )
      if (outcome.kind === 'delivered') return true
      if (verdict !== true && outcome.reason === 'not_accepted') return verdict
      const holdMs = outcome.kind === 'failed' ? outcome.retryAfterMs : undefined
      return { reason: outcome.reason, ...defined({ holdMs }) }
    },
    close: () => transport.close()
  }
}

async function mail(config: ChannelConfig, { egressAllow, publicUrl }: ChannelDeps): Promise<Way> {
  const { openMail } = await loadMail()
  const url = new URL(config.url)
  return openMail(config, {
    guard: guardFor(url, egressAllow),
    more: message => listUrl(publicUrl, message),
    timeoutMs: mailTimeoutMs
  })
}

const ports: Record<string, number> = { 'https:': 443, 'http:': 80, 'smtp:': 587, 'smtps:': 465 }

/** The operator configured this target, so it is allowed, beside the targets of EGRESS_ALLOW. */
function guardFor({ hostname, port, protocol }: URL, egressAllow: string[]): ReturnType<typeof guard> {
  const allow = [...egressAllow, `${hostname}:${port || ports[protocol]}`]
  return guard({ allow, embedded: false, deny: [] })
}

/** Links to the dashboard: the API refuses a browser that follows a link from a chat. */
function listUrl(publicUrl: string, { downstream, kind }: AlarmMessage): string {
  const query = new URLSearchParams(
    defined({
      kind: kind === 'TEST' ? undefined : kind,
      downstream: downstream === '' ? undefined : downstream
    })
  ).toString()
  return `${publicUrl}/ui/alarms${query === '' ? '' : `?${query}`}`
}

/** Removes the channel's secrets, plain and URL-encoded, from a text: a vendor's error may repeat parts of the request. */
function hider({ url, secret, user }: ChannelConfig): (text: string) => string {
  const address = new URL(url)
  const parts = [secret, user, ...address.pathname.split('/'), ...queryOf(address).values()]
  const secrets = parts
    .filter(part => part !== undefined && part.length >= 8)
    .flatMap(part => [part ?? '', encodeURIComponent(part ?? '')])
  return text => secrets.reduce((shown, part) => shown.replaceAll(part, '[masked]'), text)
}
