import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { mutated } from '../../chaos/mutant.ts'
import { mutants } from '../../chaos/mutants.ts'
import { folder } from '../support/service.ts'

const dist = join(import.meta.dirname, '../..')

for (const [name, mutant] of Object.entries(mutants)) {
  t.test(`the mutant ${name} still fits: ${mutant.description}`, async t => {
    for (const also of mutant.also ?? []) t.ok(mutated(also, dist).includes(also.to))
    const text = mutated(mutant, dist)
    t.ok(text.includes(mutant.to))
    if (!mutant.file.endsWith('.js')) return
    const file = join(folder(t), 'mutated.mjs')
    writeFileSync(file, text)
    await t.resolves(promisify(execFile)(process.execPath, ['--check', file]), 'and it is a program still')
  })
}

t.test('a mutant whose place is gone is an error, and not a run that proves nothing', async t => {
  const [mutant] = Object.values(mutants)
  if (!mutant) throw new Error('no mutants')
  t.throws(() => mutated({ ...mutant, from: 'nowhere to be found' }, dist), /0 times instead of once/)
  t.throws(() => mutated({ ...mutant, from: ';' }, dist), /times instead of once/)
})
