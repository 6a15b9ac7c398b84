import t from 'tap'
import { keyOf, sessionAfter, type Session } from '../../src/ui/session.ts'

const ops: Session = {
  signedIn: true,
  auth: true,
  version: '1',
  name: 'ops-1',
  scopes: ['ops:read', 'ops:write'],
  messageCodes: null,
  csrf: 'a'
}
const none: Session = { signedIn: false, auth: true, version: '1' }

t.test('a new session of the same key has another token, and is of the same key', async t => {
  const next = { ...ops, csrf: 'b' }
  t.equal(sessionAfter(ops, next), next)
  t.equal(keyOf(next), keyOf(ops))
})

t.test('another name, other scopes or other messageCodes are another key', async t => {
  for (const other of [{ name: 'ops-2' }, { scopes: ['ops:read'] }, { messageCodes: ['order.paid'] }])
    t.not(keyOf({ ...ops, ...other }), keyOf(ops))
})

t.test('a session that has ended keeps its key; who never signed in has none', async t => {
  const ended = sessionAfter(ops, none)
  t.same(ended, { ...ops, signedIn: false })
  t.equal(keyOf(ended), keyOf(ops))
  t.equal(sessionAfter(ended, none), ended, 'nothing has changed')
  t.equal(sessionAfter(none, none), none)
})

t.test('the same session read again changes nothing', async t => {
  t.equal(sessionAfter(ops, { ...ops }), ops)
})
