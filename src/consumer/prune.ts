// Deletes rows that no delivery and no receipt needs any more.
import { autocommitted, removeByKey, withTables, type Database } from '../adapter/transaction.ts'

/**
 * Deletes the rows whose forget_after is more than a day ago (a request may be late, and clocks differ), and receipts older than 90 days,
 * whose tokens are no longer valid.
 */
export const prune = async (db: Database<unknown>, consumer: string): Promise<void> =>
  await withTables(
    db,
    () => (db.dialect === 'postgres' ? pruneInPostgres(db, consumer) : pruneInMysql(db, consumer)),
    'consumer'
  )

async function pruneInPostgres(db: Database<unknown>, consumer: string): Promise<void> {
  const old = "consumer = $1::text and forget_after < now() - interval '1 day'"
  const left = `select webhook_id from ackbox_received where ${old} limit 1`
  while ((await db.query(left, [consumer])).length > 0)
    // The condition again: a repeat may extend forget_after while the DELETE waits for its row. Older servers do not look at the ctid again.
    await db.query(
      `delete from ackbox_received
       where ctid = any (array(select ctid from ackbox_received where ${old} limit 1000)) and ${old}`,
      [consumer]
    )
  await db.query(
    "delete from ackbox_receipt_outbox where consumer = $1::text and created_at < now() - interval '90 days'",
    [consumer]
  )
}

async function pruneInMysql(db: Database<unknown>, consumer: string): Promise<void> {
  const forgotten = 'forget_after < utc_timestamp() - interval 1 day'
  await removeByKey(autocommitted(db), [consumer], {
    find: `select webhook_id as found from ackbox_received force index (ackbox_received_forget_idx)
           where consumer = ? and ${forgotten} limit 1000`,
    remove: `delete r from json_table(?, '$[*]' columns (id varchar(128) path '$')) old
             straight_join ackbox_received r force index (primary)
               on r.webhook_id = convert(old.id using utf8mb4) collate utf8mb4_bin
             where r.consumer = ? and r.${forgotten}`
  })
  const invalid = 'created_at < utc_timestamp() - interval 90 day'
  await removeByKey(autocommitted(db), [consumer], {
    find: `select cast(id as char) as found from ackbox_receipt_outbox where consumer = ? and ${invalid} order by id limit 1000`,
    remove: `delete r from json_table(?, '$[*]' columns (id bigint path '$')) old
             straight_join ackbox_receipt_outbox r force index (primary) on r.id = old.id
             where r.consumer = ? and r.${invalid}`
  })
}
