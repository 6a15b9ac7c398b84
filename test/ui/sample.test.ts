import t from 'tap'
import { z } from 'zod'
import { sampleOf } from '../../src/ui/sample.ts'

t.test('a test task begins with a body that its handler takes, of what is required', t => {
  const bodies = [
    z.object({ orderId: z.string().min(6), cents: z.int().min(0), note: z.string().optional() }),
    z.object({ n: z.int() }),
    z.object({ kind: z.enum(['a', 'b']), at: z.iso.datetime(), who: z.email(), id: z.uuid() }),
    z.object({ lines: z.array(z.object({ sku: z.string(), many: z.int().min(3) })).min(2) }),
    z.object({ price: z.union([z.number(), z.string()]), flag: z.boolean(), fixed: z.literal('x') }),
    z.object({ inner: z.object({ none: z.null() }) })
  ]
  for (const body of bodies) {
    const sample = sampleOf(z.toJSONSchema(body, { io: 'input' }))
    t.equal(body.safeParse(sample).success, true, JSON.stringify(sample))
  }
  t.same(sampleOf(z.toJSONSchema(bodies[0] ?? z.any(), { io: 'input' })), { orderId: 'testxx', cents: 1 })
  t.same(sampleOf(undefined), {}, 'of a handler whose schema nobody can tell')
  t.same(sampleOf({}), {})
  t.end()
})
