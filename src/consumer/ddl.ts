// The tables of a receiver's own database. They are sufficient to write a receiver in any language.
//
// - ackbox_received has a row for each handled delivery. The row is inserted before the work, in the transaction of the work. A repeat
//   finds the key, and waits for the end of the first transaction if that still runs.
// - forget_after is the time after which Ackbox no longer sends the delivery. A day later the row can be deleted.
// - ackbox_receipt_outbox has the receipts that are still to be sent.

/** PostgreSQL 13 or newer. Can be run again. */
const postgres = `\
create table if not exists ackbox_received (
  consumer text not null,
  webhook_id text not null,
  task_no text not null,
  result text,
  handled_at timestamptz not null default clock_timestamp(),
  forget_after timestamptz not null,
  primary key (consumer, webhook_id)
);
create index if not exists ackbox_received_forget_idx on ackbox_received (consumer, forget_after);

create table if not exists ackbox_receipt_outbox (
  id bigint generated always as identity primary key,
  consumer text not null,
  callback_url text not null,
  callback_token text not null,
  receipt text not null,
  tries integer not null default 0,
  next_try_at timestamptz not null default clock_timestamp(),
  created_at timestamptz not null default clock_timestamp()
);
create index if not exists ackbox_receipt_outbox_due_idx on ackbox_receipt_outbox (consumer, next_try_at);
`

/** MySQL 8.0.16 or MariaDB 10.6, or newer. Can be run again. All times are in UTC. */
const mysql = `\
create table if not exists ackbox_received (
  consumer varchar(64) not null,
  webhook_id varchar(128) not null,
  task_no varchar(128) not null,
  result mediumtext,
  handled_at datetime(6) not null default (utc_timestamp(6)),
  forget_after datetime(6) not null,
  primary key (consumer, webhook_id),
  index ackbox_received_forget_idx (consumer, forget_after)
) engine = InnoDB default character set utf8mb4 collate utf8mb4_bin;

create table if not exists ackbox_receipt_outbox (
  id bigint not null auto_increment primary key,
  consumer varchar(64) not null,
  callback_url text not null,
  callback_token varchar(255) not null,
  receipt mediumtext not null,
  tries integer not null default 0,
  next_try_at datetime(6) not null default (utc_timestamp(6)),
  created_at datetime(6) not null default (utc_timestamp(6)),
  index ackbox_receipt_outbox_due_idx (consumer, next_try_at)
) engine = InnoDB default character set utf8mb4 collate utf8mb4_bin;
`

export const ddl = { postgres, mysql }
