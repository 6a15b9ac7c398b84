import t from 'tap'
import { deliveryId, uuidv7 } from '../../src/domain/ids.ts'

const shape = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/
const msOf = (id: string) => Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16)

t.test('ids are UUIDs of version 7 that say when they were made', async t => {
  const before = Date.now()
  const id = uuidv7()
  t.match(id, shape)
  t.ok(msOf(id) >= before && msOf(id) <= Date.now())
})

t.test(
  '100,000 ids made at once all differ, all have the shape, and each is greater than the one before',
  async t => {
    const ids = Array.from({ length: 100_000 }, () => uuidv7())
    t.ok(ids.every((id, i) => shape.test(id) && id > (ids[i - 1] ?? '')))
    t.equal(new Set(ids.map(id => id.slice(19))).size, ids.length, 'they differ in what is random, too')
    t.ok(msOf(ids.at(-1) ?? '') - Date.now() < 1_000, 'they hardly run ahead of the clock')
  }
)

t.test('ids rise while the clock stands still or steps back an hour, and follow it again after', async t => {
  const now = Date.now() + 60_000
  const ids = [
    uuidv7(now),
    uuidv7(now),
    uuidv7(now - 3_600_000),
    ...Array.from({ length: 5_000 }, () => uuidv7(now)),
    uuidv7(now + 10)
  ]
  t.ok(ids.every((id, i) => shape.test(id) && id > (ids[i - 1] ?? '')))
  t.equal(msOf(ids[0] ?? ''), now)
  t.equal(msOf(ids.at(-1) ?? ''), now + 10)
})

t.test('every random bit takes both values, and none of the fixed ones does', async t => {
  let ones = 0n
  let zeros = 0n
  for (let i = 0; i < 2_000; i++) {
    const random = BigInt(`0x${uuidv7().slice(19).replace('-', '')}`)
    ones |= random
    zeros |= ~random & 0xffff_ffff_ffff_ffffn
  }
  t.equal(ones, 0xbfff_ffff_ffff_ffffn)
  t.equal(zeros, 0x7fff_ffff_ffff_ffffn)
})

t.test('a delivery has one id for all its attempts, without a dot, and no other has it', async t => {
  const task = uuidv7()
  t.equal(deliveryId(task, 'ware-house'), deliveryId(task, 'ware-house'))
  t.not(deliveryId(task, 'ware-house'), deliveryId(task, 'ware-hous'))
  t.not(deliveryId(task, 'warehouse'), deliveryId(uuidv7(), 'warehouse'))
  t.notMatch(deliveryId(task, 'ware-house'), /[.\s]/)
})
