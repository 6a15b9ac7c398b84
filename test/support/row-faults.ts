import type { Test } from 'tap'
import type { Sql } from '../../src/db/pool.ts'

/** Locks the deliveries of this task. Returns a function that ends the lock. */
export async function lock(t: Test, sql: Sql, taskNo: string): Promise<() => Promise<void>> {
  let free = (): void => {}
  const freed = new Promise<void>(resolve => (free = resolve))
  let isHeld = (): void => {}
  const holding = new Promise<void>(resolve => (isHeld = resolve))
  const holder = sql.begin(async transaction => {
    await transaction`
      select from delivery where task_id = (select id from task where task_no = ${taskNo}) for update`
    isHeld()
    await freed
  })
  t.teardown(() => free())
  await holding
  return async () => {
    free()
    await holder
  }
}

/** PostgreSQL refuses every change of the deliveries of this task. */
export async function refuse(sql: Sql, taskNo: string): Promise<void> {
  const [row] = await sql<{ id: string }[]>`select id from task where task_no = ${taskNo}`
  await sql.unsafe(`
    create function refuse() returns trigger language plpgsql as
      $$begin raise exception 'no' using errcode = 'check_violation'; end$$;
    create trigger refuse before update on delivery for each row when (old.task_id = '${row?.id}') execute function refuse()`)
}
