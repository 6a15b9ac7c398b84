// The database of a bank. Each bank has one of its own.
import { ddl as consumerTables } from 'ackbox/consumer'
import { ddl as producerTables } from 'ackbox/producer'

export const customers = ['alice', 'bert', 'carol', 'dora'] as const
/** Where money for an account that is not there waits for a person. */
export const unclaimed = 'unclaimed'
const openingCents = 100_000

/** The ledger has no unique key on purpose: the tables of Ackbox keep a transfer from being booked twice, and a double would be seen. */
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
