import postgres from 'postgres'

/** Settings that a database may have and that change what statements mean, or how values are written. */
export const strangeSettings = {
  array_nulls: 'off',
  bytea_output: 'escape',
  client_min_messages: 'error',
  DateStyle: 'German, DMY',
  default_transaction_isolation: 'serializable',
  extra_float_digits: '-15',
  IntervalStyle: 'sql_standard',
  lock_timeout: '1',
  quote_all_identifiers: 'on',
  row_security: 'off',
  standard_conforming_strings: 'off',
  TimeZone: 'Pacific/Chatham',
  transform_null_equals: 'on'
}

/** For each session that begins from now on. */
export async function withStrangeSettings(url: string): Promise<void> {
  const sql = postgres(url, { max: 1 })
  const database = new URL(url).pathname.slice(1)
  for (const [name, value] of Object.entries(strangeSettings))
    await sql.unsafe(`alter database ${database} set ${name} = ${value.includes(',') ? value : `'${value}'`}`)
  await sql.end()
}
