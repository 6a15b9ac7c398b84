// The whole service with its API, on a given database: raw bytes are written to its port, and the answers are checked.
import { connect } from 'node:net'
import { bytes } from '../mutate.ts'
import { Finding } from '../reader.ts'
import type { Subject } from '../child.ts'
import { freePort } from '../../src/embedded/port.ts'

export interface ServiceOptions {
  databaseUrl: string
  secret: string
}

/** The bytes for one connection, as latin1: each part is a packet. An empty part ends our side. */
export interface HttpInput {
  parts: string[]
}

/** An answer may report overload, but no other fault of the service. */
const ours = /(?:^|[\r\n}\]>])HTTP\/1\.[01] (5\d\d)/g
const mayBe = new Set(['503', '505'])
/** After this time without a byte, the service waits for more bytes. */
const silentMs = 400
const connectionMs = 20_000

/** Starts the service in this process, with log lines of this level and above: each is a finding. Returns its port. */
export async function startService(
  { databaseUrl, secret }: ServiceOptions,
  logLevel: 'error' | 'fatal'
): Promise<number> {
  const port = await freePort()
  Object.assign(process.env, {
    DATABASE_URL: databaseUrl,
    SECRET: secret,
    PORT: String(port),
    HOST: '127.0.0.1',
    AUTH: 'off',
    DEMO: 'on',
    LOG_LEVEL: logLevel
  })
  await import('../../src/main.ts')
  while ((await statusOf(port, '/readyz')) !== 200) await new Promise(resolve => setTimeout(resolve, 50))
  return port
}

export const subject: Subject<ServiceOptions, HttpInput> = async options => {
  const port = await startService(options, 'error')
  return {
    async play({ parts }, within) {
      const answer = await within('connection', connectionMs, talk(port, parts, silentMs))
      const bad = [...answer.matchAll(ours)]
        .map(([, status = '']) => status)
        .find(status => !mayBe.has(status))
      if (bad !== undefined) throw new Finding('5xx', answer.slice(0, 1_000))
      const status = await within('healthz', connectionMs, statusOf(port, '/healthz'))
      if (status !== 200) throw new Finding('wrong', `healthz answers ${status}`)
    }
  }
}

/** The whole answer until either side ends the connection. */
function talk(port: number, parts: string[], patienceMs: number): Promise<string> {
  return new Promise(resolve => {
    let answer = ''
    const socket = connect(port, '127.0.0.1')
    const over = (): void => {
      socket.destroy()
    }
    socket
      .setNoDelay(true)
      .setTimeout(patienceMs, over)
      .on('error', () => {})
      .on('close', () => resolve(answer))
      .on('data', data => {
        if (answer.length < 1 << 20) answer += data.toString('latin1')
      })
    const left = [...parts]
    const next = (): void => {
      const part = left.shift()
      if (part === undefined || socket.destroyed) return
      if (part === '') return void socket.end()
      socket.write(bytes(part))
      setImmediate(next)
    }
    next()
  })
}

export async function statusOf(port: number, path: string): Promise<number> {
  const request = `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nConnection: close\r\n\r\n`
  return Number((await talk(port, [request], connectionMs)).slice(9, 12))
}
