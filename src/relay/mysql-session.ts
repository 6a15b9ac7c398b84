// The settings of our sessions in a producer's MySQL or MariaDB. Each of them has a global value that a server, or its init_connect, may have
// changed, and would change what our statements mean: every one of the manuals' lists of session variables that does is here.
// Left as the server has them: settings of plans, of buffers, of DDL, and of times in words.

/** Part of each session. `= default` would be the global value. */
const always = [
  'autocommit = 1',
  // 1 begins a transaction behind each COMMIT, and 2 ends the connection.
  'completion_type = 0',
  "time_zone = '+00:00'",
  'sql_safe_updates = 0',
  'sql_select_limit = 18446744073709551615',
  'sql_auto_is_null = 0',
  'max_join_size = 18446744073709551615',
  // Behind max_join_size, which sets it.
  'sql_big_selects = 1',
  'group_concat_max_len = 1073741824',
  'div_precision_increment = 4',
  'foreign_key_checks = 1',
  'unique_checks = 1'
]

/** Only MariaDB has these. A zero means no limit: wait_timeout ends a session that is idle in its transaction. */
const ofMariadb = [
  'max_statement_time = 0',
  'idle_transaction_timeout = 0',
  'idle_readonly_transaction_timeout = 0',
  'idle_write_transaction_timeout = 0',
  "default_regex_flags = ''",
  "old_mode = ''"
]

/** MariaDB runs what is in the comment, and MySQL does not. */
const set = (settings: readonly string[]): string => {
  const session = (names: readonly string[]) => names.map(setting => `session ${setting}`).join(', ')
  return `set ${session([...always, ...settings])} /*M! , ${session(ofMariadb)} */`
}

/** Statements for a session of the relay. The server ends it if it is idle for longer than `idleMs`, also inside of a transaction. */
export const relaySession = (idleMs: number): string[] => [
  'set names utf8mb4 collate utf8mb4_bin',
  // READ COMMITTED: a row lock of another relay must not also lock the gap in front of the row.
  'set session transaction isolation level read committed, read write',
  set([
    // The driver escapes with backslashes, which NO_BACKSLASH_ESCAPES turns off. In MySQL, row_number() is unsigned, and a difference with
    // it would be too.
    "sql_mode = 'STRICT_TRANS_TABLES,NO_UNSIGNED_SUBTRACTION'",
    'innodb_lock_wait_timeout = 5',
    'lock_wait_timeout = 30',
    `wait_timeout = ${Math.ceil(idleMs / 1_000)}`
  ])
]

/**
 * Statements for the session of an import. sql_mode stays: the expressions of --columns are written for that of the server. While Ackbox is
 * unreachable, nothing reads the server's data, and the server must not give up after a minute.
 */
export const importSession: string[] = [
  'set names utf8mb4',
  'set session transaction isolation level repeatable read, read write',
  set(['net_write_timeout = 3600'])
]

/** Statements that a server may refuse: an old MySQL, one without the setting, or a user without the right. */
export const wishes: string[] = [
  // A limit in ms for SELECT, which only MySQL has.
  'set session max_execution_time = 0',
  // With STATEMENT, InnoDB refuses writes at READ COMMITTED. The right is BINLOG ADMIN, or SESSION_VARIABLES_ADMIN in MySQL.
  "set session binlog_format = if(@@session.binlog_format = 'STATEMENT', 'ROW', @@session.binlog_format)"
]
