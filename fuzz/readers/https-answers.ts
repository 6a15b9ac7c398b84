// Answers in place of a downstream's TLS: records with a false length, alerts, plain text, floods of handshakes.
import { conversationReader } from '../conversation.ts'
import type { Script } from '../hostile-server.ts'
import { judgeOutcomes, type TransportOptions } from '../subjects/transport.ts'

const options: TransportOptions = { name: 'http', url: 'https://127.0.0.1:{port}/hook', request: {} }

/** A record of TLS 1.2 with its type and the length in its header. */
const record = (type: number, body: string, length = body.length): string =>
  `${String.fromCharCode(type)}\x03\x03${String.fromCharCode(length >> 8, length & 0xff)}${body}`
/** A ServerHello that chooses TLS_AES_128_GCM_SHA256 and x25519, with an invalid key. */
const extensions = `\0\x2b\0\x02\x03\x04\0\x33\0\x24\0\x1d\0\x20${'k'.repeat(32)}`
const hello = `\x03\x03${'r'.repeat(32)}\0\x13\x01\0\0${String.fromCharCode(extensions.length)}${extensions}`
const serverHello = record(22, `\x02\0\0${String.fromCharCode(hello.length)}${hello}`)
const alert = record(21, '\x02\x28')

const valid: Script[] = [
  { answers: [alert], end: 'close' },
  { answers: [serverHello, record(20, '\x01'), record(23, 'e'.repeat(64))], end: 'close' },
  { answers: [serverHello + record(20, '\x01') + record(23, 'e'.repeat(64), 0x4000)], end: 'close' },
  { answers: ['HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n'], end: 'close' }
]

export const reader = conversationReader({
  name: 'https-answers',
  module: new URL('../subjects/transport.js', import.meta.url),
  options,
  valid,
  floods: [alert, serverHello, record(20, '\x01'), record(22, '\0'.repeat(64)), record(23, 'x'.repeat(512))],
  judge: judgeOutcomes
})
