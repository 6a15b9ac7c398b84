import { sql, bigint, index, pgTable, primaryKey, text, uuid } from './drizzle.ts'
import { at } from './columns.ts'

/** A row for each task that another one waits for; `done_at`: it waits for it no longer. */
export const dependency = pgTable(
  'dependency',
  {
    taskId: uuid('task_id').notNull(),
    afterId: uuid('after_id').notNull(),
    doneAt: at('done_at')
  },
  t => [
    primaryKey({ name: 'dependency_pkey', columns: [t.taskId, t.afterId] }),
    index('dependency_after_idx').on(t.afterId, t.taskId),
    index('dependency_open_idx')
      .on(t.taskId)
      .where(sql`${t.doneAt} is null`)
  ]
)

/** Deliveries of one downstream with one key run one after the other. Whoever decides which is next locks this row first. */
export const ordering = pgTable(
  'ordering',
  {
    downstream: text('downstream').notNull(),
    orderingKey: text('ordering_key').notNull(),
    /** The position of the next one that is accepted. */
    next: bigint('next', { mode: 'number' }).notNull(),
    /** The position of the one that may run; null: none is left. */
    head: bigint('head', { mode: 'number' }),
    /** Since when its head is FAILED and holds it. */
    heldAt: at('held_at')
  },
  t => [
    primaryKey({ name: 'ordering_pkey', columns: [t.downstream, t.orderingKey] }),
    index('ordering_held_idx')
      .on(t.downstream, t.orderingKey)
      .where(sql`${t.heldAt} is not null`)
  ]
)

/** A key of which one has ended: its next one may go. Written with the end itself, by a trigger (by hand in the migration). */
export const promotion = pgTable(
  'promotion',
  {
    downstream: text('downstream').notNull(),
    orderingKey: text('ordering_key').notNull()
  },
  t => [index('promotion_key_idx').on(t.downstream, t.orderingKey)]
)
