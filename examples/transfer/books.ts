// Compares the books of the two banks, while transfers are in progress and at the end.
/** Rows of a bank's database. */
export type Rows = <Row>(query: string) => Promise<Row[]>

interface Entry {
  transferId: string
  cents: number
}
/** The books of one bank at one moment, read by one statement. */
export interface BankBooks {
  opening: number
  balance: number
  out: readonly Entry[]
  in: readonly Entry[]
}
export interface Sums {
  /** The opening money of both banks. */
  opening: number
  balances: number
  /** Money that has left one bank and has not yet arrived at the other. */
  inFlight: number
  /** The violations: each line is money that was created or lost. */
  wrong: string[]
}

async function readBank(rows: Rows): Promise<BankBooks> {
  const entries = (direction: string) =>
    `(select coalesce(json_agg(json_build_object('transferId', transfer_id, 'cents', cents)), '[]') from ledger where direction = '${direction}')`
  const [row] = await rows<{ books: BankBooks }>(
    `select json_build_object('opening', sum(opening_cents), 'balance', sum(cents),
       'out', ${entries('OUT')}, 'in', ${entries('IN')}) as books
     from account`
  )
  if (row === undefined) throw new Error('the bank has no accounts')
  return row.books
}

/**
 * Reads both. Two databases have no common snapshot: arrivals are read before debits, so each arrival finds its debit. While no transfer
 * runs, opening = balances + inFlight, exactly; at any other moment the balances are never more than the opening.
 */
export async function readSums(a: Rows, b: Rows): Promise<Sums> {
  const before = await readBank(a)
  const other = await readBank(b)
  const after = await readBank(a)
  return sums(before, other, after)
}

export function sums(before: BankBooks, other: BankBooks, after: BankBooks): Sums {
  const arrived = [...before.in, ...other.in]
  const sent = [...after.out, ...other.out]
  const opening = before.opening + other.opening
  const balances = after.opening + total(before.in) - total(after.out) + other.balance
  const arrivedIds = new Set(arrived.map(one => one.transferId))
  const inFlight = total(sent.filter(one => !arrivedIds.has(one.transferId)))
  const wrong = [
    ...[before, other, after].flatMap(({ balance, opening: opened, in: credits, out: debits }) =>
      balance === opened + total(credits) - total(debits)
        ? []
        : [`accounts hold ${balance}, and the ledger says ${opened + total(credits) - total(debits)}`]
    ),
    ...repeated(arrived).map(id => `${id} arrived twice`),
    ...repeated(sent).map(id => `${id} was debited twice`),
    ...arrived
      .filter(
        one => !sent.some(({ transferId, cents }) => transferId === one.transferId && cents === one.cents)
      )
      .map(one => `${one.transferId} arrived with ${one.cents} and never left`),
    ...(balances > opening ? [`${balances} are there, and both opened with ${opening}`] : []),
    ...(balances + inFlight === opening
      ? []
      : [`${balances} and ${inFlight} in flight are not the ${opening} that both opened with`])
  ]
  return { opening, balances, inFlight, wrong }
}

const total = (entries: readonly Entry[]): number => entries.reduce((sum, { cents }) => sum + cents, 0)

function repeated(entries: readonly Entry[]): string[] {
  const seen = new Set<string>()
  return entries.map(one => one.transferId).filter(id => seen.has(id) || !seen.add(id))
}
