// The tables of a producer's own database. Code in any language can write to them: one INSERT with message_code and
// message_body is a task.
//
// - The rows leave in the order of `id`. Rows of one ordering_key never overtake each other: their shard, one of 16, is read
//   by one relay at a time.
// - A row that Ackbox permanently refuses moves to ackbox_outbox_rejected, with the problem of the answer.
// - message_body is text, so that Ackbox gets exactly the text that was written. The INSERT fails for text that is not JSON.
// - ackbox_barrier records the first of two events: the transaction of a half message, or the check of it.

/** PostgreSQL 13 or newer. Can be run again. */
const postgres = `\
create table if not exists ackbox_outbox (
  id bigint generated always as identity primary key,
  task_no text not null default gen_random_uuid()::text,
  message_code text not null,
  message_body text not null check (message_body::json is not null),
  scene_type text,
  deliver_start_time timestamptz,
  delay_ms bigint,
  deliver_before timestamptz,
  ordering_key text,
  need_callback boolean,
  retry_times integer,
  biz_type text,
  biz_key text,
  unique_biz boolean,
  "after" jsonb,
  extend jsonb,
  traceparent text,
  created_at timestamptz not null default clock_timestamp(),
  shard smallint generated always as ((strpos('0123456789abcdef', left(md5(ordering_key), 1)) - 1)::smallint) stored
);
create index if not exists ackbox_outbox_shard_idx on ackbox_outbox (shard, id) where ordering_key is not null;
create index if not exists ackbox_outbox_unkeyed_idx on ackbox_outbox (id) where ordering_key is null;

create table if not exists ackbox_outbox_rejected (
  id bigint primary key,
  task_no text not null,
  message_code text not null,
  message_body text not null,
  scene_type text,
  deliver_start_time timestamptz,
  delay_ms bigint,
  deliver_before timestamptz,
  ordering_key text,
  need_callback boolean,
  retry_times integer,
  biz_type text,
  biz_key text,
  unique_biz boolean,
  "after" jsonb,
  extend jsonb,
  traceparent text,
  created_at timestamptz not null,
  problem text not null,
  rejected_at timestamptz not null default clock_timestamp()
);

create table if not exists ackbox_barrier (
  task_no text primary key,
  state text not null check (state in ('COMMITTED', 'ROLLED_BACK')),
  created_at timestamptz not null default clock_timestamp()
);
create index if not exists ackbox_barrier_created_idx on ackbox_barrier (created_at);
`

/** MariaDB's json_valid is 0 for 32 levels and more. A text with so many brackets is left to Ackbox, which takes 64 levels. */
const isJson = (name: string): string =>
  `json_valid(${name}) = 1 or char_length(${name}) - char_length(replace(replace(${name}, '[', ''), '{', '')) >= 32`

/**
 * MySQL 8.0.16 or MariaDB 10.6, or newer. Can be run again. deliver_start_time and deliver_before are in UTC. Without the `= 1`, MariaDB
 * reports such a column as JSON, and drivers return values instead of the text. A generated column cannot use MD5 since MySQL 9.6.
 */
const mysql = `\
-- In MariaDB, a table that Ackbox 1.0 made takes JSON of at most 31 levels. This makes it 64, as everywhere:
-- alter table ackbox_outbox modify message_body mediumtext not null check (${isJson('message_body')}),
--   modify extend text check (${isJson('extend')});
create table if not exists ackbox_outbox (
  id bigint not null auto_increment primary key,
  task_no varchar(128) not null default (uuid()),
  message_code varchar(255) not null,
  message_body mediumtext not null check (${isJson('message_body')}),
  scene_type varchar(255),
  deliver_start_time datetime(6),
  delay_ms bigint,
  deliver_before datetime(6),
  ordering_key varchar(255),
  need_callback boolean,
  retry_times integer,
  biz_type varchar(64),
  biz_key varchar(128),
  unique_biz boolean,
  \`after\` text check (json_valid(\`after\`) = 1),
  extend text check (${isJson('extend')}),
  traceparent varchar(255),
  created_at timestamp(6) not null default current_timestamp(6),
  shard tinyint generated always as (crc32(ordering_key) % 16) stored,
  index ackbox_outbox_shard_idx (shard, id)
) engine = InnoDB default character set utf8mb4 collate utf8mb4_bin;

create table if not exists ackbox_outbox_rejected (
  id bigint not null primary key,
  task_no varchar(128) not null,
  message_code varchar(255) not null,
  message_body mediumtext not null,
  scene_type varchar(255),
  deliver_start_time datetime(6),
  delay_ms bigint,
  deliver_before datetime(6),
  ordering_key varchar(255),
  need_callback boolean,
  retry_times integer,
  biz_type varchar(64),
  biz_key varchar(128),
  unique_biz boolean,
  \`after\` text,
  extend text,
  traceparent varchar(255),
  created_at timestamp(6) not null default current_timestamp(6),
  problem text not null,
  rejected_at timestamp(6) not null default current_timestamp(6)
) engine = InnoDB default character set utf8mb4 collate utf8mb4_bin;

create table if not exists ackbox_barrier (
  task_no varchar(128) not null primary key,
  state varchar(16) not null check (state in ('COMMITTED', 'ROLLED_BACK')),
  created_at timestamp(6) not null default current_timestamp(6),
  index ackbox_barrier_created_idx (created_at)
) engine = InnoDB default character set utf8mb4 collate utf8mb4_bin;
`

export const ddl = { postgres, mysql }
