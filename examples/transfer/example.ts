// The story of this example: npm run example -- transfer
import { audit } from '../runner/audit.ts'
import type { Example } from '../runner/example.ts'
import type { Stage } from '../runner/stage.ts'
import { readSums } from './books.ts'
import { customers, tables, unclaimed } from './tables.ts'
import type { Answer, Bank, Transfer } from './transfer.ts'

/** The number of customers at the same time. */
const atOnce = 4
/** More cents than a bank transfers without approval. */
const tooMuch = 60_000

/** In both directions by turns. Every fifth is too much, every seventh is to an account that does not exist. */
function nthTransfer(nth: number): Transfer {
  const [fromBank, toBank]: [Bank, Bank] = nth % 2 === 0 ? ['a', 'b'] : ['b', 'a']
  const customer = (at: number): string => customers[at % customers.length] ?? ''
  return {
    transferId: `transfer-${nth}`,
    fromBank,
    from: customer(nth),
    toBank,
    to: nth % 7 === 0 ? 'nobody' : customer(nth >> 2),
    cents: nth % 5 === 0 ? tooMuch : 100 + ((nth * 37) % 900)
  }
}

export const example: Example = {
  title: 'money between the databases of two banks: a half message takes it out, consumeOnce brings it in',
  invariant: 'bank a + bank b + in flight never changed, and every transfer that left arrived once',
  count: 40,
  async play(stage) {
    const banks = await openBanks(stage)
    const answers = new Map<number, Answer>()
    const order = async (nth: number): Promise<void> => {
      const transfer = nthTransfer(nth)
      answers.set(nth, await stage.call<Answer>(`${banks.at[transfer.fromBank]}/transfers`, transfer))
    }
    const look = () => readSums(banks.a, banks.b)

    const auditing = audit(async () => (await look()).wrong)
    await stage.work(stage.count, async (from, to) => {
      let next = from
      const customer = async (): Promise<void> => {
        while (next <= to) await order(next++)
      }
      await Promise.all(Array.from({ length: atOnce }, customer))
      const { balances, inFlight } = await look()
      stage.step(
        `transfers ${from} to ${to} are ordered: ${balances} at the banks + ${inFlight} in flight = ${balances + inFlight}`
      )
    })
    await stage.until('all that left has arrived', async () => (await look()).inFlight === 0)
    for (const status of ['PREPARED', 'SENDING'])
      await stage.until(`Ackbox has no task that is ${status}`, async () => {
        const { tasks } = await stage.call<{ tasks: unknown[] }>(`${banks.ackbox}/tasks?status=${status}`)
        return tasks.length === 0
      })
    const { looks, wrong } = await auditing.end()
    stage.step(`the books were added up ${looks} times while transfers were under way`)
    return [...wrong, ...(await check())]

    async function check(): Promise<string[]> {
      const { opening, balances, wrong: last } = await look()
      const numbers = (state: Answer['state']) =>
        [...answers].flatMap(([nth, one]) => (one.state === state ? [nth] : []))
      const [sent, refused] = [numbers('SENT'), numbers('REFUSED')]
      stage.step(
        `${sent.length} transfers were sent, ${refused.length} refused; the banks hold ${balances} of ${opening}`
      )
      const ids = sent.map(nth => nthTransfer(nth).transferId).toSorted()
      const booked = async (direction: 'OUT' | 'IN') => {
        const query = `select transfer_id as id from ledger where direction = '${direction}'`
        const lines = await Promise.all([banks.a, banks.b].map(rows => rows<{ id: string }>(query)))
        return lines
          .flat()
          .map(({ id }) => id)
          .toSorted()
      }
      const unclaimedCents = `select cents::int as cents from account where id = '${unclaimed}'`
      const waiting = await Promise.all(
        [banks.a, banks.b].map(rows => rows<{ cents: number }>(unclaimedCents))
      )
      const forNobody = sent.map(nthTransfer).filter(({ to }) => to === 'nobody')
      const { tasks: failed } = await stage.call<{ tasks: unknown[] }>(`${banks.ackbox}/tasks?status=FAILED`)
      return [
        ...last,
        ...(balances === opening ? [] : [`the banks hold ${balances}, and opened with ${opening}`]),
        ...(String(await booked('OUT')) === String(ids)
          ? []
          : ['what was debited is not what was answered SENT']),
        ...(String(await booked('IN')) === String(ids)
          ? []
          : ['what was credited is not what was answered SENT']),
        ...sent
          .filter(nth => nthTransfer(nth).cents === tooMuch)
          .map(nth => `transfer ${nth} is too much, and left`),
        ...(total(waiting.flat()) === total(forNobody)
          ? []
          : ['the money for nobody is not what waits unclaimed']),
        ...(failed.length === 0 ? [] : [`${failed.length} deliveries failed`])
      ]
    }
  }
}

const total = (of: readonly { cents: number }[]): number => of.reduce((sum, { cents }) => sum + cents, 0)

async function openBanks(stage: Stage) {
  const ports = { a: await stage.port(), b: await stage.port() }
  const at: Record<Bank, string> = { a: `http://127.0.0.1:${ports.a}`, b: `http://127.0.0.1:${ports.b}` }
  const ackbox = await stage.ackbox({ BANK_A_URL: at.a, BANK_B_URL: at.b })
  for (const bank of ['a', 'b'] as const)
    await stage.program(`bank-${bank}`, 'bank.js', {
      BANK: bank,
      DATABASE_URL: await stage.database(`bank_${bank}`, tables),
      PORT: String(ports[bank]),
      ACKBOX_URL: ackbox,
      SIGNING_SECRET: stage.secret(`bank-${bank}`),
      CHECK_SECRET: stage.secret('check:transfer.sent')
    })
  const rows =
    (bank: Bank) =>
    <Row>(query: string) =>
      stage.rows<Row>(`bank_${bank}`, query)
  return { at, ackbox, a: rows('a'), b: rows('b') }
}
