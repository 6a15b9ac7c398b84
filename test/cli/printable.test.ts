import t from 'tap'
import { printable } from '../../src/cli/arguments.ts'

t.test(
  'a text of a downstream moves no cursor on the terminal, and is read in the order in which it was written',
  async t => {
    t.equal(printable('a\u001b[2Jb\rc\u009bd'), 'a [2Jb c d')
    t.equal(printable('\u202eexe.live\u202c, \u2066x\u2069, \u200fy\u061c'), ' exe.live ,  x ,  y ')
    t.equal(printable('库存不足 👩‍🔧'), '库存不足 👩‍🔧', 'joiners belong to what is written')
  }
)
