// The two databases: of the stock, and of the orders. Each also has the tables of Ackbox.
import { ddl as consumerTables } from 'ackbox/consumer'
import { ddl as producerTables } from 'ackbox/producer'

export const initial = { book: 1_000, lamp: 8 }

/**
 * A freeze is FROZEN, and then RELEASED_SOLD or RELEASED_UNSOLD for ever. `is_held`: its payment is in progress, and its time limit no
 * longer applies.
 */
export const stockTables = `${producerTables.postgres} ${consumerTables.postgres}
create table stock (
  sku text primary key,
  initial int not null,
  available int not null check (available >= 0),
  frozen int not null default 0 check (frozen >= 0),
  sold int not null default 0 check (sold >= 0)
);
insert into stock (sku, initial, available)
  select key, value::int, value::int from json_each_text('${JSON.stringify(initial)}');
create table stock_freeze (
  order_id text primary key,
  sku text not null references stock,
  quantity int not null check (quantity > 0),
  placed jsonb not null,
  state text not null default 'FROZEN' check (state in ('FROZEN', 'RELEASED_SOLD', 'RELEASED_UNSOLD')),
  is_held boolean not null default false
);
`

/** provider_charge belongs to the payment provider, which stands for an external service. */
export const orderTables = `${producerTables.postgres} ${consumerTables.postgres}
create table customer_order (
  order_id text primary key,
  sku text not null,
  quantity int not null,
  cents int not null,
  card text,
  state text not null check (state in ('UNPAID', 'PAYING', 'PAID', 'CLOSED')),
  reason text check ((reason is not null) = (state = 'CLOSED'))
);
create table provider_charge (key text primary key, cents int not null, is_taken boolean not null);
`
