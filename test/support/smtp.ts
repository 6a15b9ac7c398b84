// A real SMTP server for alarm mails, with STARTTLS and a login.
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { SMTPServer } from 'smtp-server'
import type { Test } from 'tap'
import * as certs from '../transport/certs.ts'

interface Mail {
  tls: boolean
  user: string | undefined
  from: string
  to: string[]
  /** Headers and text, as received. */
  text: string
}

export interface Smtp {
  port: number
  mails: Mail[]
  /** The number of login attempts. */
  logins: number
  /** Recipients that it refuses. */
  unknown: Set<string>
  /** Called before it answers that it takes a mail. */
  taking: () => void
  close(): Promise<void>
}

export async function smtpServer(
  t: Test,
  { user, password, tls = true }: { user: string; password: string; tls?: boolean }
): Promise<Smtp> {
  const mails: Mail[] = []
  let isOpen = true
  const server = new SMTPServer({
    key: certs.key,
    cert: certs.good,
    allowInsecureAuth: true,
    disabledCommands: tls ? [] : ['STARTTLS'],
    onAuth(login, _session, done) {
      smtp.logins++
      const isRight = login.username === user && login.password === password
      done(isRight ? null : new Error(`no such login: ${login.password}`), { user: login.username })
    },
    onRcptTo({ address }, _session, done) {
      done(smtp.unknown.has(address) ? new Error('no such mailbox') : null)
    },
    onData(stream, session, done) {
      const chunks: Buffer[] = []
      stream.on('data', (chunk: Buffer) => chunks.push(chunk))
      stream.on('end', () => {
        mails.push({
          tls: session.secure,
          user: session.user,
          from: session.envelope.mailFrom ? session.envelope.mailFrom.address : '',
          to: session.envelope.rcptTo.map(({ address }) => address),
          text: Buffer.concat(chunks).toString()
        })
        smtp.taking()
        done()
      })
    }
  })
  // A client that disconnects in the middle does not fail the test.
  server.on('error', () => {})
  server.listen(0, '127.0.0.1')
  await once(server.server, 'listening')
  const smtp: Smtp = {
    port: (server.server.address() as AddressInfo).port,
    mails,
    logins: 0,
    unknown: new Set(),
    taking() {},
    async close() {
      if (!isOpen) return
      isOpen = false
      await new Promise<void>(resolve => server.close(resolve))
    }
  }
  t.teardown(() => smtp.close())
  return smtp
}
