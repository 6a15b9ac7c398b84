// The checks that need no Java. test/interop/open-platform.test.ts runs the example itself.
import { mkdirSync, symlinkSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { compared, reconciled } from '../../examples/open-platform/books.ts'
import { program } from '../support/program.ts'
import { folder } from '../support/service.ts'

const runner = path.resolve(import.meta.dirname, '../../examples/run.js')

t.test('without java and mvn the example says what it needs, and ends', async t => {
  const bin = path.join(folder(t), 'bin')
  mkdirSync(bin)
  symlinkSync('/bin/sh', path.join(bin, 'sh'))
  const { exited, lines } = program(t, process.execPath, [runner, 'open-platform'], { env: { PATH: bin } })
  t.equal(await exited, 1)
  t.match(
    lines.join('\n'),
    /failed: this example needs .* java \(17 or newer\) and mvn; not found here: java, mvn/
  )
})

t.test('its books show what is missing, doubled, changed or strange', async t => {
  const materials = [1, 2].map(id => ({ id, title: `Material ${id}` }))
  const row = (material: number, title = `Material ${material}`) => ({
    taskNo: `material-${material}`,
    material,
    title
  })
  t.same(compared(materials, 'feed', [row(1), row(2)]), [])
  t.same(compared(materials, 'feed', [row(1)]), ['feed shows material 2 0 times'])
  t.same(compared(materials, 'feed', [row(1), row(2), row(2)]), ['feed shows material 2 2 times'])
  t.same(compared(materials, 'feed', [row(1), row(2, 'x')]), ['feed shows material 2 as material-2, x'])
  t.same(compared(materials, 'feed', [row(1), row(2), row(3)]), [
    'feed shows material 3, which was never published'
  ])
})

t.test('a difference that reconcile must not name, and one that it must', async t => {
  const missing = { kind: 'MISSING', taskNo: 'material-1' } as const
  t.same(reconciled('search', []), [])
  t.same(reconciled('search', [missing], ['material-1']), [])
  t.same(reconciled('search', [missing]), ['reconcile says of search: MISSING material-1'])
  t.same(reconciled('search', [], ['material-1']), ['reconcile does not say of search: MISSING material-1'])
})
