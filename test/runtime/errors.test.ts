import t from 'tap'
import { problemBody, problems, Unavailable } from '../../src/runtime/errors.ts'

t.test('only the loss of the database and our own bugs answer 5xx', t => {
  for (const [code, [status, title]] of Object.entries(problems)) {
    t.match(code, /^[A-Z][A-Z_]+8?$/)
    t.ok(title.length > 10)
    if (status >= 500) t.ok(['INTERNAL', 'UNAVAILABLE'].includes(code), code)
  }
  t.end()
})

t.test('a detail is escaped and cut to 200 characters', t => {
  const { detail = '' } = problemBody('INVALID', `<b>\u202e\u0000${'\u{1f600}'.repeat(300)}`)
  t.ok(detail.startsWith('\\u003cb\\u003e\\u202e\\u0000'))
  t.equal(detail.length, 200)
  t.same(problemBody('NOT_FOUND'), {
    type: 'urn:ackbox:problem:NOT_FOUND',
    title: 'Path not found',
    status: 404,
    code: 'NOT_FOUND'
  })
  t.equal(new Unavailable().retryAfterS, 1)
  t.end()
})

t.test('a secret that is divided where a long detail is cut is not shown', t => {
  // It shrinks to a few characters, so that what follows it is shown.
  const long = `ack_${'a'.repeat(800)} `
  const secret = 'C6q8miC2rFt8zznrFQ8BEMOUgEMHKdKnNtIsXbtNw8'
  for (const [story, encode] of [
    ['plain', (text: string) => text],
    ['in UTF-16', (text: string) => Buffer.from(text, 'utf16le').toString('latin1')]
  ] as const)
    for (const prefix of ['ack_', 'v1,'])
      for (let before = 100; before < 200; before++) {
        const text = `${long}${'.'.repeat(before)}${encode(prefix + secret)} ${'.'.repeat(1_000)}`
        const { detail = '' } = problemBody('INVALID', text)
        t.ok(detail.startsWith('ack_[masked]') && detail.endsWith('...') && detail.length <= 200)
        t.notMatch(detail.replaceAll('\\u0000', ''), /C6q8/, `${story}, ${prefix}, after ${before}`)
      }
  t.end()
})
