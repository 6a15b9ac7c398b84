// The settings of a session that change what our statements mean, or how values are written. A role, a database or the server may have
// its own. Sources: PostgreSQL manual, "Client Connection Defaults" and "Version and Platform Compatibility".

type Settings = Readonly<Record<string, string>>

/**
 * Of every session in PostgreSQL that we open. PostgreSQL 9.5 has them all. Left to the server: `search_path`, which chooses our schema,
 * `default_transaction_read_only`, which operators set on a server that must not be written to, and the places and forms of storage. Without
 * a meaning for us: `lc_*`, `xmloption`, `backslash_quote` and others of features that no statement uses.
 */
export const sessionSettings: Settings = {
  array_nulls: 'on',
  bytea_output: 'hex',
  // Below it the warning that a standby has not confirmed a commit would not be sent.
  client_min_messages: 'warning',
  DateStyle: 'ISO, MDY',
  // A statement of a stricter level fails at a concurrent write, and the second of two first starts does not see the tables of the first.
  default_transaction_isolation: 'read committed',
  // The shortest exact text since PostgreSQL 12, an exact one before.
  extra_float_digits: '3',
  IntervalStyle: 'postgres',
  lock_timeout: '0',
  quote_all_identifiers: 'off',
  row_security: 'on',
  standard_conforming_strings: 'on',
  TimeZone: 'UTC',
  transform_null_equals: 'off'
}

/** For sessions in Ackbox's own database, which is PostgreSQL 14 or newer. */
export const ownSessionSettings: Settings = {
  ...sessionSettings,
  idle_in_transaction_session_timeout: '0',
  idle_session_timeout: '0',
  plan_cache_mode: 'auto'
}

/** The option `options` of a start of a session, for a client that cannot send settings by name. */
export const asOptions = (settings: Settings): string =>
  Object.entries(settings)
    .map(([name, value]) => `-c ${name}=${value.replaceAll(/[\\ ]/g, '\\$&')}`)
    .join(' ')
