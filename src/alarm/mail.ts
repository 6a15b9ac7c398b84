import { connect } from 'node:net'
import { createTransport } from 'nodemailer'
import { tlsName } from '../runtime/tls.ts'
import type { Guard } from '../transport/egress/guard.ts'
import { mailAddresses, queryOf, type ChannelConfig } from './channel-config.ts'
import type { AlarmChannel, AlarmMessage } from './types.ts'
import { groupOf, textOf, titleOf } from './message.ts'
import { codeOf, isError, textOf as wordOf } from '../runtime/text-of.ts'

export interface MailDeps {
  guard: Guard
  more: (message: AlarmMessage) => string
  timeoutMs: number
}

/**
 * Sends mail through one server. With a user, TLS is required, unless the URL contains `tls=off`. A message that is sent again keeps its
 * Message-ID. Messages of one incident refer to one id, so that mail programs show them as one thread.
 */
export function openMail(
  { url, user, secret, language }: ChannelConfig,
  { guard, more, timeoutMs }: MailDeps
): Pick<AlarmChannel, 'send' | 'close'> {
  const address = new URL(url)
  const { hostname, port, protocol } = address
  const secure = protocol === 'smtps:'
  const host = hostname.replace(/^\[|\]$/g, '')
  const number = Number(port) || (secure ? 465 : 587)
  const { from, to } = mailAddresses(address)
  const isPlain = queryOf(address).get('tls') === 'off'
  const idAt = from.split('@')[1]?.replace(/>$/, '') ?? 'ackbox'
  return {
    async send(message, signal) {
      if (signal.aborted) return { reason: 'shutdown' }
      const way = createTransport({
        host: tlsName(host),
        port: number,
        secure,
        ignoreTLS: isPlain,
        requireTLS: user !== undefined && !isPlain,
        ...(user === undefined ? {} : { auth: { user, pass: secret ?? '' } }),
        connectionTimeout: timeoutMs,
        greetingTimeout: timeoutMs,
        socketTimeout: timeoutMs,
        dnsTimeout: timeoutMs,
        disableFileAccess: true,
        disableUrlAccess: true,
        getSocket(_options: unknown, done: (err: Error | null, socket?: object) => void) {
          const socket = connect({ host, port: number, lookup: guard.lookup(number), timeout: timeoutMs })
          const abort = (): void => void socket.destroy(new Error('shutdown'))
          const late = setTimeout(() => socket.destroy(new Error('timeout')), timeoutMs)
          signal.addEventListener('abort', abort, { once: true })
          socket.once('close', () => {
            clearTimeout(late)
            signal.removeEventListener('abort', abort)
          })
          socket.once('error', done)
          socket.once('connect', () => {
            socket.off('error', done)
            done(null, { connection: socket })
          })
        }
      })
      try {
        const { rejected, rejectedErrors } = await way.sendMail({
          from,
          to,
          subject: titleOf(message, language),
          text: textOf(message, language, more(message), 60_000),
          messageId: `<${message.id.replaceAll(/[^\w.-]/g, '_')}@${idAt}>`,
          references: `<${groupOf(message).replaceAll(/[^\w.-]/g, '_')}@${idAt}>`,
          headers: { 'Auto-Submitted': 'auto-generated' }
        })
        if (rejected.length === 0) return true
        const why = rejectedErrors?.[0]?.response?.slice(0, 200) ?? 'refused'
        return { reason: `smtp: not taken for ${rejected.join(', ').slice(0, 200)}: ${why}`, isTaken: true }
      } catch (err) {
        return { reason: reasonOf(err) }
      } finally {
        way.close()
      }
    },
    close: async () => {}
  }
}

function reasonOf(err: unknown): string {
  if (!isError(err)) return 'failed'
  const code = codeOf(err)
  return `smtp: ${code === undefined ? '' : `${code}: `}${wordOf(err)}`
}
