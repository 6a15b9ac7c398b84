// Mutants of the order by orderingKey. The index that prevents two heads is removed, or it would hide the mutants.
import type { Mutant } from './mutant.ts'

const migration = '../src/db/migrations/0005_operations.sql'
const twoHeadsAreFine = {
  file: migration,
  from: 'CREATE UNIQUE INDEX "delivery_head_key"',
  to: 'CREATE INDEX "delivery_head_key"'
}
const profile = { perKey: 20, seconds: 24 }

export const keyMutants: Record<string, Mutant> = {
  'promotion-before-receipt': {
    description:
      'the next delivery of a key is sent after the answer to the one before it, though a receipt is owed',
    file: migration,
    from: "new.status <> old.status AND (new.status <> 0 OR new.phase = 'BLOCKED')",
    to: "(new.status <> 0 OR new.phase IN ('BLOCKED', 'AWAITING_RECEIPT'))",
    also: [
      twoHeadsAreFine,
      {
        // The current version of the function.
        file: '../src/db/migrations/0012_promote_in_steps.sql',
        from: `SELECT d.task_id, d.position, d.status, d.phase, d.attempt FROM delivery d
			WHERE`,
        to: `SELECT d.task_id, d.position, d.status, d.phase, d.attempt FROM delivery d
			WHERE d.phase IS DISTINCT FROM 'AWAITING_RECEIPT' AND`
      }
    ],
    expects: 'overtaken',
    only: ['kill.worker'],
    profile
  },
  'two-heads': {
    description: 'an accepted delivery becomes a head, even behind another one',
    file: 'src/db/new-deliveries.js',
    from: 'p.position <> k.head',
    to: 'p.position < k.head',
    also: [twoHeadsAreFine],
    expects: 'overtaken',
    only: ['kill.worker'],
    profile
  },
  'forgotten-promotion': {
    description: 'a delivery that a process did not promote before its death is never looked for',
    file: 'src/delivery/ordering.js',
    from: 'sweeping || !cluster.hasPromotions()',
    to: 'true',
    also: [
      {
        // Leaves time for a death between the end of a delivery and the promotion.
        file: 'src/db/ordering.js',
        from: 'export async function promote(sql, keys, withTasks, owner) {',
        to: 'export async function promote(sql, keys, withTasks, owner) {\nawait new Promise(resolve => setTimeout(resolve, 300));'
      }
    ],
    expects: 'stuck',
    only: ['kill.worker', 'postgres.stop'],
    profile
  },
  'position-by-chance': {
    description: 'positions in a key do not follow the order of acceptance',
    file: 'src/db/new-deliveries.js',
    from: 'k.next - n + nth - 1 as position',
    to: 'k.next - n + nth - 1 + (random() * 1000000)::int as position',
    expects: 'misplaced',
    only: ['kill.worker'],
    profile
  },
  'position-without-lock': {
    description:
      'a position is taken before its key is locked, so that a later task may stand before an earlier one',
    file: 'src/db/new-deliveries.js',
    from: 'k.next - n + nth - 1 as position',
    to: '(extract(epoch from now()) * 1000000)::bigint + nth - 1 as position',
    also: [
      {
        file: 'src/db/new-deliveries.js',
        from: `next = greatest(ordering.next, excluded.head) + excluded.next - excluded.head,
        head = coalesce(ordering.head, greatest(ordering.next, excluded.head))`,
        to: 'next = greatest(ordering.next, excluded.next), head = coalesce(ordering.head, excluded.head)'
      },
      {
        // Leaves time between the position and the lock.
        file: 'src/db/new-deliveries.js',
        from: `where (task_id in (select id from stored)) is true
      ) w
    ), keys as (`,
        to: `where (task_id in (select id from stored)) is true and (select count(*) from pg_sleep(random() * 0.04)) = 1
      ) w
    ), keys as (`
      }
    ],
    expects: 'overtaken',
    only: ['kill.worker'],
    profile
  }
}
