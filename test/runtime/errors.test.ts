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
