import t from 'tap'
import { isAllowed } from '../../release/allowed.ts'

t.test('a licence outside of the list is refused, and so is one that nobody can read', async t => {
  for (const license of ['MIT', 'Apache-2.0', '(BSD-3-Clause AND Apache-2.0)', '(MIT OR CC0-1.0)'])
    t.ok(isAllowed(license), license)
  for (const license of [
    'GPL-3.0-only',
    'AGPL-3.0-or-later',
    'MPL-2.0',
    '(MIT AND GPL-2.0-only)',
    '(MIT OR GPL-2.0-only)',
    'SEE LICENSE IN LICENSE.txt',
    'UNLICENSED',
    '',
    undefined,
    { type: 'MIT' }
  ])
    t.notOk(isAllowed(license), JSON.stringify(license))
})
