import t from 'tap'
import { canResolve, type Alarm } from '../../src/ui/shapes.ts'

const alarm = (more: Partial<Alarm>): Alarm => ({
  taskNo: 'order-1',
  messageCode: 'order.paid',
  downstream: 'warehouse',
  attempt: 0,
  kind: 'MISMATCH',
  createdAt: '2026-01-02T03:04:05.000Z',
  ...more
})

t.test('an open alarm can be resolved, also that about unknown tasks, which has no status', t => {
  t.ok(canResolve(alarm({ kind: 'FAILED', status: 'FAILED' })))
  t.ok(canResolve(alarm({ reason: 'UNKNOWN' })))
  t.notOk(canResolve(alarm({ resolvedAt: '2026-01-02T03:05:00.000Z' })))
  t.notOk(canResolve(alarm({ kind: 'REJECTED' })), 'it ends with its row')
  t.notOk(canResolve(alarm({ taskNo: '' })))
  t.end()
})
