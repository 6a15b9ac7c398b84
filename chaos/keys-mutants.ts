// Broken on purpose: order by orderingKey. The index that makes two heads impossible is taken away, or nothing would show.
import type { Charge } from './judge/finding.ts'
import type { Action } from './nemesis-plan.ts'

const migration = '../src/db/migrations/0005_operations.sql'
const twoHeadsAreFine = {
  file: migration,
  from: 'CREATE UNIQUE INDEX "delivery_head_key"',
  to: 'CREATE INDEX "delivery_head_key"'
}
const profile = { perKey: 20, seconds: 24 }

interface Change {
  file: string
  from: string
  to: string
}

export const keyMutants: Record<
  string,
  Change & {
    what: string
    also?: Change[]
    expects: Charge
    only: Action[]
    profile: { perKey: number; seconds: number }
  }
> = {
  'promotion-before-receipt': {
    what: 'the next one of a key goes when the one before it was answered, though a receipt is owed',
    file: migration,
    from: "new.status <> old.status AND (new.status <> 0 OR new.phase = 'BLOCKED')",
    to: "(new.status <> 0 OR new.phase IN ('BLOCKED', 'AWAITING_RECEIPT'))",
    also: [
      twoHeadsAreFine,
      {
        file: migration,
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
    what: 'one that is accepted is a head, whatever is in front of it',
    file: 'src/db/new-deliveries.js',
    from: 'p.position <> k.head',
    to: 'p.position < k.head',
    also: [twoHeadsAreFine],
    expects: 'overtaken',
    only: ['kill.worker'],
    profile
  },
  'forgotten-promotion': {
    what: 'what a process did not live to promote is never looked for',
    file: 'src/delivery/ordering.js',
    from: 'sweeping || !cluster.hasPromotions()',
    to: 'true',
    expects: 'stuck',
    only: ['kill.worker', 'postgres.stop'],
    profile
  },
  'position-by-chance': {
    what: 'places in a key do not follow the order of acceptance',
    file: 'src/db/new-deliveries.js',
    from: 'k.next - n + nth - 1 as position',
    to: 'k.next - n + nth - 1 + (random() * 1000000)::int as position',
    expects: 'misplaced',
    only: ['kill.worker'],
    profile
  }
}
