// The story of this example: npm run example -- pay-callback
import { ddl as consumerTables } from 'ackbox/consumer'
import { ddl as producerTables } from 'ackbox/producer'
import type { Example } from '../runner/example.ts'

const gatewayTables = `${producerTables.postgres}
create table payment (id integer primary key, cents integer not null, paid_at timestamptz not null default now());
`
// The tables have no unique key, so a second booking or signature is detected.
const merchantTables = `${consumerTables.postgres}
create table booked (id bigint generated always as identity primary key, payment integer not null, cents integer not null);
create table signed (id bigint generated always as identity primary key, payment integer not null, was_booked boolean not null);
`
const centsOf = (payment: number): number => 100 + payment

export const example: Example = {
  title: 'a payment, its notification with a receipt, and a contract that is signed after it',
  invariant: 'every payment was booked once and signed once, and none was signed before it was booked',
  count: 30,
  async play(stage) {
    const [gatewayPort, ordersPort, contractsPort] = [
      await stage.port(),
      await stage.port(),
      await stage.port()
    ]
    const [url, gateway, merchant] = await Promise.all([
      stage.ackbox({
        ORDERS_URL: `http://127.0.0.1:${ordersPort}`,
        CONTRACTS_URL: `http://127.0.0.1:${contractsPort}`
      }),
      stage.database('gateway', gatewayTables),
      stage.database('merchant', merchantTables)
    ])
    const receiving = (name: string, port: number) =>
      stage.program(name, `${name}.js`, {
        DATABASE_URL: merchant,
        SIGNING_SECRET: stage.secret(name),
        ACKBOX_URL: url,
        PORT: String(port)
      })
    await Promise.all([
      receiving('orders', ordersPort),
      receiving('contracts', contractsPort),
      stage.program('gateway', 'gateway.js', { DATABASE_URL: gateway, PORT: String(gatewayPort) }),
      stage.command('relay', ['ackbox', 'relay', '--to', url], { ACKBOX_RELAY_FROM: gateway }, /relay\.ready/)
    ])

    await stage.work(stage.count, async (from, to) => {
      const payments = Array.from({ length: to - from + 1 }, (_, index) => from + index)
      await Promise.all(
        payments.map(payment =>
          stage.call(`http://127.0.0.1:${gatewayPort}/payments/${payment}/${centsOf(payment)}`, {})
        )
      )
      stage.step(`payments ${from} to ${to} are made`)
      await stage.until(`payments ${from} to ${to} are signed`, async () => {
        const [row] = await stage.rows<{ signed: number }>(
          'merchant',
          `select count(distinct payment)::int as signed from signed where payment between ${from} and ${to}`
        )
        return row?.signed === payments.length
      })
      stage.step(`payments ${from} to ${to} are booked, then signed`)
    })
    for (let payment = 1; payment <= stage.count; payment++)
      await stage.until(`the task of payment ${payment} is HANDLED`, async () => {
        const { status } = await stage.call<{ status: string }>(`${url}/tasks/payment-${payment}-sign`)
        return status === 'HANDLED'
      })

    const payments = await stage.rows<{ id: number; cents: number }>(
      'gateway',
      'select id, cents from payment order by id'
    )
    const booked = await stage.rows<{ payment: number; cents: number }>('merchant', 'select * from booked')
    const signed = await stage.rows<{ payment: number; was_booked: boolean }>(
      'merchant',
      'select * from signed'
    )
    stage.step(`${payments.length} payments, ${booked.length} bookings, ${signed.length} signatures`)
    return [
      ...(payments.length === stage.count ? [] : [`${payments.length} payments instead of ${stage.count}`]),
      ...payments.flatMap(({ id, cents }) => {
        const bookings = booked.filter(row => row.payment === id && row.cents === cents).length
        const signatures = signed.filter(row => row.payment === id).length
        return bookings === 1 && signatures === 1
          ? []
          : [`payment ${id} was booked ${bookings} times and signed ${signatures} times`]
      }),
      ...(booked.length === payments.length ? [] : ['there are bookings of no payment']),
      ...signed
        .filter(row => !row.was_booked)
        .map(row => `payment ${row.payment} was signed before it was booked`)
    ]
  }
}
