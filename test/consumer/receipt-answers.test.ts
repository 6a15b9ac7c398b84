// Which answers end a receipt: those of /callback, and no page of a gateway. Every receiver of this project has the same codes.
import { readFileSync } from 'node:fs'
import t from 'tap'
import { isFinal } from '../../src/consumer/receipts.ts'

/** Over after a while, or mended without the receipt. */
const transient = new Set([
  'OVERLOADED',
  'UNAVAILABLE',
  'CROSS_ORIGIN',
  'MISDIRECTED',
  'UNSUPPORTED_MEDIA_TYPE'
])
const { paths } = JSON.parse(readFileSync('openapi/openapi.json', 'utf8')) as {
  paths: Record<string, { post: { responses: Record<string, { description: string }> } }>
}
const codes = Object.values(paths['/callback']?.post.responses ?? {}).flatMap(({ description }) =>
  Array.from(description.matchAll(/\b([A-Z0-9_]{4,}): /g), ([, code = '']) => code)
)
const final = codes.filter(code => !transient.has(code))

t.test('a refusal of /callback ends a receipt', async t => {
  t.equal(final.length, 13)
  for (const code of final) t.ok(isFinal({ ok: false }, JSON.stringify({ code })), code)
  for (const code of transient) t.notOk(isFinal({ ok: false }, JSON.stringify({ code })), code)
  t.ok(isFinal({ ok: true }, '{"taskNo":"order-1","status":"HANDLED","applied":true}'))
})

t.test('an answer of a gateway or of another path ends none', async t => {
  for (const page of [
    '{"code":"404","msg":"no route"}',
    '{"code":"AUTH_REQUIRED"}',
    '{"code":404}',
    '{"code":"NOT_FOUND"}',
    '{"code":"UNAUTHORIZED"}',
    '{"message":"no Route matched"}',
    '<h1>Not found</h1>',
    'null',
    ''
  ])
    t.notOk(isFinal({ ok: false }, page), page)
  t.notOk(isFinal({ ok: true }, '{"code":"0","msg":"welcome"}'))
})

t.test('every language and the docs have the same codes', async t => {
  for (const file of [
    'sdk/java/src/main/java/ackbox/sdk/Ackbox.java',
    'examples/receivers/python/ackbox_receiver.py',
    'examples/receivers/receiver.mjs',
    'examples/receivers/receiver.py',
    'examples/receivers/Receiver.java',
    'examples/java/src/main/java/ackbox/example/rocketmq/Receiver.java',
    'docs/receivers.md',
    'docs/zh/receivers.md'
  ]) {
    const text = readFileSync(file, 'utf8')
    t.same(
      codes.filter(code => new RegExp(`\\b${code}\\b`).test(text)),
      final,
      file
    )
  }
})
