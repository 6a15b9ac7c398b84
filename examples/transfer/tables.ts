// The tables of a bank. Each bank has its own database.
import { ddl as consumerTables } from 'ackbox/consumer'
import { ddl as producerTables } from 'ackbox/producer'

export const customers = ['alice', 'bert', 'carol', 'dora'] as const
/** The account for money whose account does not exist. An operator decides about it. */
export const unclaimed = 'unclaimed'
const openingCents = 100_000

/** The ledger has no unique key on purpose: only the tables of Ackbox prevent a second booking, and the check would detect one. */
export const tables = `${producerTables.postgres} ${consumerTables.postgres}
create table account (id text primary key, opening_cents bigint not null, cents bigint not null check (cents >= 0));
insert into account select id, ${openingCents}, ${openingCents} from unnest('{${customers.join()}}'::text[]) id;
insert into account values ('${unclaimed}', 0, 0);
create table ledger (
  id bigint generated always as identity primary key,
  transfer_id text not null,
  direction text not null check (direction in ('OUT', 'IN')),
  account text not null references account,
  cents bigint not null check (cents > 0)
);
create index on ledger (transfer_id);
`
