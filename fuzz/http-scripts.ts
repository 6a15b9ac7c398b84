// Answers of HTTP servers, for the readers that speak HTTP.
import { brotliCompressSync, deflateRawSync, gzipSync } from 'node:zlib'
import type { Script } from './hostile-server.ts'

export const head = (status: string, ...headers: string[]): string =>
  `HTTP/1.1 ${[status, ...headers].join('\r\n')}\r\n\r\n`

/** One answer to each request, on as few connections as possible. */
export const answer = (...texts: string[]): Script => ({ answers: [texts.join('')], end: 'again' })

const coded = (coding: string, body: Buffer): Script =>
  answer(
    head('200 OK', `content-encoding: ${coding}`, `content-length: ${body.length}`),
    body.toString('latin1')
  )

/** A text as the content of a 200, in the forms that HTTP allows. */
export const formsOf = (text: string): Script[] => [
  answer(head('200 OK', `content-length: ${text.length}`, 'content-type: application/json'), text),
  answer(
    head('200 OK', 'transfer-encoding: chunked', 'trailer: x-sum'),
    `${text.length.toString(16)};a=b\r\n${text}\r\n0\r\nx-sum: 1\r\n\r\n`
  ),
  answer(
    head('100 Continue'),
    head('103 Early Hints', 'link: </x>'),
    head('200 OK', 'x-folded: one', '  two', `content-length:\t${text.length} `),
    text
  ),
  coded('gzip', gzipSync(text)),
  coded('deflate, br', brotliCompressSync(deflateRawSync(text))),
  { answers: [`${head('200 OK', 'connection: close')}${text}`], end: 'close' }
]

const bomb = gzipSync(Buffer.alloc(20_000_000)).toString('latin1')
const brotliBomb = brotliCompressSync(Buffer.alloc(20_000_000)).toString('latin1')

/** Repeated without end. */
export const httpFloods: string[] = [
  head('200 OK', 'content-length: 4') + 'fine',
  head('200 OK', 'content-encoding: gzip', `content-length: ${bomb.length}`) + bomb,
  head('200 OK', 'content-encoding: br', `content-length: ${brotliBomb.length}`) + brotliBomb,
  head('103 Early Hints', 'link: </x>'),
  head('100 Continue'),
  'x-more: of them\r\n',
  ' more of it\r\n',
  '1;x\r\ny\r\n',
  'ffff\r\n'
]
