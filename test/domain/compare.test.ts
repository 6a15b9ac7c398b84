import crypto, { timingSafeEqual } from 'node:crypto'
import { syncBuiltinESMExports } from 'node:module'
import t from 'tap'
import { tokens } from '../../src/domain/tokens.ts'

t.test(
  'the proof in a token is compared as a whole, so that its time says nothing of where it differs',
  async t => {
    const compared: [Buffer, Buffer][] = []
    const honest = timingSafeEqual
    crypto.timingSafeEqual = (a, b) => {
      compared.push([Buffer.from(a as Buffer), Buffer.from(b as Buffer)])
      return honest(a, b)
    }
    // Modules that imported it by name now also use the replacement.
    syncBuiltinESMExports()
    t.teardown(() => {
      crypto.timingSafeEqual = honest
      syncBuiltinESMExports()
    })
    const made = { taskNo: 'order-1', downstream: 'warehouse', attempt: 1, at: new Date() }
    const all = tokens({ current: 'a master secret', previous: 'the one before it' })
    const issued = all.issue(made)
    const wrong = [
      issued.slice(0, -1) + (issued.endsWith('A') ? 'B' : 'A'),
      issued.replace(/\.[^.]{43}$/, `.${'A'.repeat(43)}`)
    ]
    t.match(all.check(issued, 'order-1', new Date()), { downstream: 'warehouse', attempt: 1 })
    for (const one of wrong) t.equal(all.check(one, 'order-1', new Date()), null)
    t.equal(all.check(issued, 'order-2', new Date()), null)
    t.equal(compared.length, 4, 'each of right form was compared, and by nothing else')
    t.ok(
      compared.every(([a, b]) => a.length === 43 && b.length === 43),
      'all of it, always of one length'
    )
    const before = compared.length
    t.equal(all.check('garbage', 'order-1', new Date()), null)
    t.equal(compared.length, before, 'what has not the form of one is no secret to compare')
  }
)
