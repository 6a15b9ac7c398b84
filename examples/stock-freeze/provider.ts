// A payment provider, which stands for an external service: its charges are committed on their own, even if the caller's transaction fails.
import type { Pool } from 'pg'

/** The card of a customer whose payment fails. */
export const badCard = 'declined'

/** Charges once per key, and always returns the same result for a key: whether the money was taken. */
export async function charge(
  pool: Pool,
  { key, cents, card }: { key: string; cents: number; card: string }
): Promise<boolean> {
  await pool.query(
    'insert into provider_charge (key, cents, is_taken) values ($1, $2, $3) on conflict do nothing',
    [key, cents, card !== badCard]
  )
  const { rows } = await pool.query<{ is_taken: boolean }>(
    'select is_taken from provider_charge where key = $1',
    [key]
  )
  return rows[0]?.is_taken === true
}
